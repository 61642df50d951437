"""Several hosts on one machine: network namespaces, joined by a network that is slow, loses frames
and can be cut (README.md).

    with Hosts(4, Link(delay_ms=2, loss=0.001, gbit=1)) as hosts:
        subprocess.run([*hosts[1].enter, "ringzero", "train", …])
        hosts.cut(0, 1)
"""
import atexit
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import unittest
from dataclasses import dataclass

INTERFACE = "eth0"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAM = os.environ.get("RINGZERO_HOSTS_LINK", os.path.join(_ROOT, "build", "bin", "hosts_link"))
_ANSWER_SECONDS = 20.0
_NAMESPACES = "/run/netns"

# What the kernel's /proc/sys says in each of them.
_SETTINGS = {
    # Only what a test sends is on the network.
    "/proc/sys/net/ipv6/conf/default/disable_ipv6": "1",
    # As hosts with long links between them are set up: a window for 64 MiB under way, and a
    # connection that was idle while everybody computed does not begin again with ten packets.
    "/proc/sys/net/ipv4/tcp_rmem": "4096 131072 67108864",
    "/proc/sys/net/ipv4/tcp_wmem": "4096 131072 67108864",
    "/proc/sys/net/ipv4/tcp_slow_start_after_idle": "0",
    # The one that every kernel has, whatever this machine's own is: it takes a loss for congestion.
    "/proc/sys/net/ipv4/tcp_congestion_control": "reno",
}


class HostsError(Exception):
    pass


def _run(*words: str) -> str:
    """What the command printed; HostsError with its own words when it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise HostsError(f"{' '.join(words)}: {said}")
    return done.stdout


@dataclass(frozen=True)
class Host:
    index: int

    @property
    def namespace(self) -> str:
        return f"ringzero-{os.getpid()}-host{self.index}"

    @property
    def namespace_file(self) -> str:
        return os.path.join(_NAMESPACES, self.namespace)

    @property
    def address(self) -> str:
        return f"10.77.0.{self.index + 1}"

    @property
    def hardware_address(self) -> str:
        """Its last byte names the port (link.cc)."""
        return f"02:00:0a:4d:00:{self.index + 1:02x}"

    @property
    def enter(self) -> list[str]:
        """What a command begins with, to run there. It becomes the command: same process, same
        parent."""
        return ["nsenter", f"--net={self.namespace_file}", "--"]

    def make(self) -> None:
        _run("ip", "netns", "add", self.namespace)
        _run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        settings = "; ".join(f"[ ! -e {path} ] || echo '{value}' >{path}"
                             for path, value in _SETTINGS.items())
        _run(*self.enter, "sh", "-ec", settings)


def _remove(namespace: str) -> None:
    """Whatever state it is in."""
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def remove_stale() -> None:
    """Namespaces whose maker does not live any more: it was killed."""
    for name in os.listdir(_NAMESPACES) if os.path.isdir(_NAMESPACES) else ():
        found = re.match(r"ringzero-(\d+)-\w+$", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            _remove(name)


def why_not() -> str | None:
    """Why this machine makes no namespaces with devices for us; None when it does. Tried, not
    guessed."""
    for tool in ("ip", "nsenter"):
        if shutil.which(tool) is None:
            return f"the program '{tool}' is missing (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "making network namespaces takes root, and this is another user"
    tried = Host(999)  # no Hosts has so many
    try:
        tried.make()
        _run("ip", "-n", tried.namespace, "tuntap", "add", "dev", INTERFACE, "mode", "tap")
    except HostsError as error:
        return f"this machine allows no network namespaces or no devices in them: {error}"
    finally:
        _remove(tried.namespace)
    return None


def need_hosts() -> None:
    """setUpModule of tests here: SKIPPED where the machine has no hosts. A signal ends a test as an
    exception."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if (reason := why_not()) is not None:
        raise unittest.SkipTest(reason)


@dataclass(frozen=True)
class Link:
    """What lies between any two hosts; numbers are of one way."""
    delay_ms: float = 0
    loss: float = 0        # probability that a frame is lost
    gbit: float = 0        # Gbit/s of each host's line, both ways at once; 0: as fast as it goes
    frame_bytes: int = 9000
    seed: int = 1


class _LinkProcess:
    def __init__(self, link: Link, hosts: list[Host]) -> None:
        self.process = subprocess.Popen(
            [_PROGRAM, "--delay-ms", f"{link.delay_ms}", "--loss", f"{link.loss}", "--gbit",
             f"{link.gbit}", "--seed", f"{link.seed}", *(host.namespace_file for host in hosts)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            # Ctrl-C is for those whom it connects; it ends with its standard input.
            start_new_session=True)
        try:
            self._answer("ready")
        except BaseException:
            self.close()
            raise

    def _answer(self, wanted: str) -> str:
        """The next line, which must begin so."""
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(_ANSWER_SECONDS):
                    raise HostsError(f"hosts_link: no '{wanted}' within {_ANSWER_SECONDS:g} s")
                more = os.read(self.process.stdout.fileno(), 1)
                if not more:
                    said = self.process.stderr.read().decode(errors="replace").strip()
                    raise HostsError(f"hosts_link ended: {said}")
                line += more
        text = line.decode().strip()
        if not text.startswith(wanted):
            raise HostsError(f"hosts_link: wanted '{wanted}', found '{text}'")
        return text

    def ask(self, command: str) -> str:
        self.process.stdin.write(f"{command}\n".encode())
        return self._answer(command)

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(timeout=_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Hosts:
    """`count` hosts in a list: hosts[0] has address 10.77.0.1, and so on. Close it, or leave the
    `with`; an exit of the process closes it too, and what a killed process leaves is removed by the
    next Hosts."""

    def __init__(self, count: int, link: Link) -> None:
        remove_stale()
        self._hosts = [Host(index) for index in range(count)]
        self._network = None
        atexit.register(self.close)
        try:
            for host in self._hosts:
                host.make()
            self._network = _LinkProcess(link, self._hosts)
            for host in self._hosts:
                self._configure(host, link.frame_bytes)
        except BaseException:
            self.close()
            raise

    def _configure(self, host: Host, frame_bytes: int) -> None:
        def ip(*words: str) -> None:
            _run("ip", "-n", host.namespace, *words)
        ip("link", "set", INTERFACE, "address", host.hardware_address, "mtu", f"{frame_bytes}", "up")
        ip("addr", "add", f"{host.address}/24", "dev", INTERFACE)
        for other in self._hosts:  # no host has to ask who is where: a lost question costs a second
            if other is not host:
                ip("neigh", "add", other.address, "lladdr", other.hardware_address,
                   "dev", INTERFACE, "nud", "permanent")

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def cut(self, a: int, b: int | None = None) -> None:
        """Between two hosts, or between one and all others. No error is told: frames just do not
        come."""
        self._set_cut(a, b, "cut")

    def join(self, a: int, b: int | None = None) -> None:
        self._set_cut(a, b, "join")

    def _set_cut(self, a: int, b: int | None, command: str) -> None:
        for other in range(len(self._hosts)) if b is None else (b,):
            if other != a:
                self._network.ask(f"{command} {a} {other}")

    def counts(self) -> dict[str, int]:
        """Frames since the start."""
        names = ("delivered", "delivered_bytes", "lost", "overflow", "cut")
        return dict(zip(names, map(int, self._network.ask("counts").split()[1:])))

    def close(self) -> None:
        """A second time it does nothing."""
        atexit.unregister(self.close)
        network, self._network = self._network, None
        if network is not None:
            network.close()
        for host in self._hosts:
            _remove(host.namespace)
        self._hosts = []
