#!/usr/bin/env python3
"""The hosts of these tests: they hear each other late, with losses, not at all when cut, and nothing
of them is left."""
import contextlib
import glob
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from hosts import Hosts, HostsError, Link, need_hosts, remove_stale, sockets  # noqa: E402

setUpModule = need_hosts
PORT = 9000
MODULES = {"PYTHONPATH": os.path.dirname(HERE)}


def namespaces_of(pid):
    return glob.glob(f"/run/netns/ringzero-{pid}-*")


def echo(socket, count):
    for _ in range(count):
        data, sender = socket.recvfrom(2048)
        socket.sendto(data, sender)


def round_trips(hosts, count):
    """Seconds, of single bytes that go to and fro."""
    with sockets.udp(hosts[0], PORT) as one, sockets.udp(hosts[1], PORT) as other:
        answering = threading.Thread(target=echo, args=(other, count))
        answering.start()
        found = []
        for _ in range(count):
            begin = time.monotonic()
            one.sendto(b"?", (hosts[1].address, PORT))
            one.recv(16)
            found.append(time.monotonic() - begin)
        answering.join()
    return found


def gbit_per_second(hosts, count):
    """Of `count` bytes over one connection."""
    one, other = sockets.tcp_pair(hosts[0], hosts[1], PORT)
    with one, other:
        block, left = bytes(1 << 18), count
        parts = count // len(block)
        sending = threading.Thread(target=lambda: [one.sendall(block) for _ in range(parts)])
        begin = time.monotonic()
        sending.start()
        while left > 0:
            left -= len(other.recv(min(left, 1 << 20)))
        seconds = time.monotonic() - begin
        sending.join()
    return 8e-9 * count / seconds


class Network(unittest.TestCase):
    def hears(self, hosts, a, b):
        """Whether a datagram from a reaches b."""
        with sockets.udp(hosts[a], PORT) as one, sockets.udp(hosts[b], PORT, seconds=0.3) as other:
            one.sendto(b"!", (hosts[b].address, PORT))
            try:
                return other.recv(16) == b"!"
            except TimeoutError:
                return False

    def test_delay(self):
        for delay_ms in (0, 5, 20):
            with self.subTest(delay_ms=delay_ms), Hosts(2, Link(delay_ms=delay_ms)) as hosts:
                found = round_trips(hosts, 20)
                self.assertGreaterEqual(min(found), 2e-3 * delay_ms)
                self.assertLess(statistics.median(found), 2e-3 * delay_ms + 3e-3)

    def test_rate(self):
        with Hosts(2, Link(gbit=1, delay_ms=2)) as hosts:
            found = gbit_per_second(hosts, 64 << 20)
            self.assertLess(found, 1.05)
            self.assertGreater(found, 0.5)

    def test_losses_are_counted_and_mended_by_tcp(self):
        sent, at_once = 2000, 100  # the kernel drops what a switch without a processor does not read
        with Hosts(2, Link(loss=0.1)) as hosts:
            got = []
            with sockets.udp(hosts[0], PORT) as one, sockets.udp(hosts[1], PORT, 0.05) as other:
                deadline = time.monotonic() + 30
                for i in range(sent):
                    one.sendto(i.to_bytes(4, "little"), (hosts[1].address, PORT))
                    while (i + 1) % at_once == 0 and len(got) + hosts.counts()["lost"] <= i:
                        self.assertLess(time.monotonic(), deadline)
                        with contextlib.suppress(TimeoutError):
                            got.append(int.from_bytes(other.recv(16), "little"))
            lost = hosts.counts()["lost"]
            self.assertEqual(got, sorted(set(got)))
            self.assertEqual(len(got) + lost, sent)
            self.assertLess(abs(lost - 0.1 * sent), 4 * (sent * 0.1 * 0.9) ** 0.5)
        with Hosts(2, Link(loss=0.001, delay_ms=2, gbit=1)) as hosts:
            one, other = sockets.tcp_pair(hosts[0], hosts[1], PORT)
            data = os.urandom(16 << 20)
            with one, other:
                threading.Thread(target=one.sendall, args=(data,)).start()
                with other.makefile("rb") as stream:
                    got = stream.read(len(data))
            self.assertEqual(got, data)
            self.assertGreater(hosts.counts()["lost"], 0)

    def test_cut(self):
        with Hosts(3, Link(delay_ms=1)) as hosts:
            one, other = sockets.tcp_pair(hosts[0], hosts[1], PORT)
            with one, other:
                hosts.cut(0)
                self.assertFalse(self.hears(hosts, 0, 1))
                self.assertFalse(self.hears(hosts, 2, 0))
                self.assertTrue(self.hears(hosts, 1, 2))
                one.sendall(b"into the void")  # the connection does not know: nothing is refused
                other.settimeout(0.3)
                self.assertRaises(TimeoutError, other.recv, 16)
                hosts.join(0)
                self.assertTrue(self.hears(hosts, 0, 1))
                other.settimeout(5)
                self.assertEqual(other.recv(16), b"into the void")

    def test_cut_between_two(self):
        with Hosts(3, Link()) as hosts:
            hosts.cut(0, 1)
            self.assertFalse(self.hears(hosts, 0, 1))
            self.assertTrue(self.hears(hosts, 0, 2))
            self.assertTrue(self.hears(hosts, 1, 2))
            self.assertGreater(hosts.counts()["cut"], 0)

    def test_unknown_words_are_refused(self):
        with Hosts(2, Link()) as hosts:
            with self.assertRaisesRegex(HostsError, "cannot obey 'cut 0 7'"):
                hosts.cut(0, 7)


class Leaving(unittest.TestCase):
    """The maker of hosts ends in some way: what is left?"""

    def start(self):
        code = ("from hosts import Hosts, Link\nimport time\nhosts = Hosts(2, Link())\n"
                "print(hosts._network.process.pid, flush=True)\ntime.sleep(600)")
        maker = subprocess.Popen([sys.executable, "-c", code], env=os.environ | MODULES, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(remove_stale)
        self.addCleanup(maker.stdout.close)
        self.addCleanup(maker.kill)
        return maker, int(maker.stdout.readline())

    def ended(self, pid):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if not os.path.exists(f"/proc/{pid}"):
                return True
            time.sleep(0.01)
        return False

    def test_interrupted(self):
        maker, link = self.start()
        self.assertEqual(len(namespaces_of(maker.pid)), 2)
        maker.send_signal(signal.SIGINT)
        maker.wait(timeout=20)
        self.assertEqual(namespaces_of(maker.pid), [])
        self.assertTrue(self.ended(link))

    def test_killed(self):
        maker, link = self.start()
        maker.kill()
        maker.wait(timeout=20)
        self.assertTrue(self.ended(link))
        self.assertEqual(len(namespaces_of(maker.pid)), 2)
        Hosts(2, Link()).close()
        self.assertEqual(namespaces_of(maker.pid), [])
        self.assertEqual(namespaces_of(os.getpid()), [])

    def test_what_a_machine_lacks_is_said(self):
        def reason(prefix, **environment):
            code = "from hosts import why_not; print(why_not())"
            done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True,
                                  text=True, check=True, env=os.environ | MODULES | environment)
            return done.stdout
        self.assertIn("'ip' is missing", reason([], PATH="/nowhere"))
        self.assertIn("takes root", reason(["setpriv", "--reuid=65534", "--clear-groups"]))
        without_right = ["setpriv", "--bounding-set=-sys_admin"]
        self.assertIn("allows no network namespaces", reason(without_right))


if __name__ == "__main__":
    unittest.main()
