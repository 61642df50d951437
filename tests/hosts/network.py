"""Hosts and what joins them: Link, a switch of our own in user space, with a delay, a rate and losses."""
import atexit
import os
import selectors
import subprocess
from dataclasses import dataclass

from hosts import namespaces
from hosts.namespaces import HostsError, run, why_not

__all__ = ["Host", "Hosts", "HostsError", "Link", "why_not"]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAM = os.environ.get("RINGZERO_HOSTS_LINK", os.path.join(_ROOT, "build", "bin", "hosts_link"))
_ANSWER_SECONDS = 20.0
INTERFACE = "eth0"


@dataclass(frozen=True)
class Host:
    index: int
    namespace: str

    @property
    def address(self) -> str:
        return f"10.77.0.{self.index + 1}"

    @property
    def hardware_address(self) -> str:
        """Its last byte names the port (link.cc)."""
        return f"02:00:0a:4d:00:{self.index + 1:02x}"

    @property
    def enter(self) -> list[str]:
        """What a command begins with, to run on this host."""
        return namespaces.enter(self.namespace)


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
        files = [namespaces.file_of(host.namespace) for host in hosts]
        self._process = subprocess.Popen(
            [_PROGRAM, "--delay-ms", f"{link.delay_ms}", "--loss", f"{link.loss}", "--gbit", f"{link.gbit}", "--seed",
             f"{link.seed}", *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
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
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(_ANSWER_SECONDS):
                    raise HostsError(f"hosts_link: no '{wanted}' within {_ANSWER_SECONDS:g} s")
                more = os.read(self._process.stdout.fileno(), 1)
                if not more:
                    raise HostsError(f"hosts_link ended: {self._process.stderr.read().decode(errors='replace').strip()}")
                line += more
        text = line.decode().strip()
        if not text.startswith(wanted):
            raise HostsError(f"hosts_link: wanted '{wanted}', found '{text}'")
        return text

    def _ask(self, command: str) -> str:
        self._process.stdin.write(f"{command}\n".encode())
        return self._answer(command)

    def set_cut(self, a: int, b: int, command: str) -> None:
        self._ask(f"{command} {a} {b}")

    def counts(self) -> dict[str, int]:
        """Frames since the start."""
        numbers = self._ask("counts").split()[1:]
        return dict(zip(("delivered", "delivered_bytes", "lost", "overflow", "cut"), map(int, numbers)))

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()


class Hosts:
    """`count` hosts in a list: hosts[0] has address 10.77.0.1, and so on. Close it, or leave the `with`; an exit of the
    process closes it too, and what a killed process leaves is removed by the next Hosts."""

    def __init__(self, count: int, link: Link) -> None:
        namespaces.remove_stale()
        self._hosts = [Host(i, namespaces.name_of(f"host{i}")) for i in range(count)]
        self._network = None
        atexit.register(self.close)
        try:
            for host in self._hosts:
                namespaces.make(host.namespace)
            self._network = _LinkProcess(link, self._hosts)
            for host in self._hosts:
                self._configure(host, link.frame_bytes)
        except BaseException:
            self.close()
            raise

    def _configure(self, host: Host, frame_bytes: int) -> None:
        def ip(*words: str) -> None:
            run("ip", "-n", host.namespace, *words)
        ip("link", "set", INTERFACE, "address", host.hardware_address, "mtu", str(frame_bytes), "up")
        ip("addr", "add", f"{host.address}/24", "dev", INTERFACE)
        for other in self._hosts:  # no host has to ask who is where: a lost question would cost a second
            if other is not host:
                ip("neigh", "add", other.address, "lladdr", other.hardware_address, "dev", INTERFACE, "nud", "permanent")

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def cut(self, a: int, b: int | None = None) -> None:
        """Between two hosts, or between one and all others. No error is told: frames just do not come."""
        self._set_cut(a, b, "cut")

    def join(self, a: int, b: int | None = None) -> None:
        self._set_cut(a, b, "join")

    def _set_cut(self, a: int, b: int | None, command: str) -> None:
        for other in range(len(self._hosts)) if b is None else (b,):
            if other != a:
                self._network.set_cut(a, other, command)

    def counts(self) -> dict[str, int]:
        return self._network.counts()

    def close(self) -> None:
        """A second time it does nothing."""
        atexit.unregister(self.close)
        network, self._network = self._network, None
        if network is not None:
            network.close()
        for host in self._hosts:
            namespaces.remove(host.namespace)
        self._hosts = []
