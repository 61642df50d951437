"""Sockets of this process that live on a host, and those that a process listens on."""
import contextlib
import ctypes
import os
import socket
import struct

from hosts import Host

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def _enter(fd: int) -> None:
    if _LIBC.setns(fd, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "entering a network namespace")


@contextlib.contextmanager
def _on(host: Host):
    """This thread is on that host: sockets that it makes stay there."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(host.namespace_file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(there)
        yield
    finally:
        _enter(home)
        os.close(there)
        os.close(home)


def udp(host: Host, port: int, seconds: float = 5) -> socket.socket:
    """Bound to the host's address; a receive takes at most `seconds`."""
    with _on(host):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    made.settimeout(seconds)
    made.bind((host.address, port))
    return made


def tcp_pair(client: Host, server: Host, port: int,
             seconds: float = 5) -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection."""
    with _on(server):
        listening = socket.create_server((server.address, port))
    with listening:
        with _on(client):
            one = socket.create_connection((server.address, port), timeout=seconds)
        other, _ = listening.accept()
    other.settimeout(seconds)
    return one, other


def listening(process: int) -> set[tuple[str, int]]:
    """The addresses and ports of its listening TCP sockets; all of IPv6 are "0.0.0.0", too."""
    descriptors = f"/proc/{process}/fd"
    mine = {os.readlink(os.path.join(descriptors, name)) for name in os.listdir(descriptors)}
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{process}/net/{table}", encoding="ascii") as lines:
            for words in map(str.split, list(lines)[1:]):
                if words[3] == "0A" and f"socket:[{words[9]}]" in mine:
                    address, port = (int(each[-8:], 16) for each in words[1].split(":"))
                    found.add((socket.inet_ntoa(struct.pack("=I", address)), port))
    return found
