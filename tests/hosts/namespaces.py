"""Network namespaces that carry the process id of who made them: made, found again when they are stale, removed."""
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

_FOLDER = "/run/netns"
_PREFIX = "ringzero"
_OURS = re.compile(rf"{_PREFIX}-(\d+)-\w+$")

# What the kernel's /proc/sys says in each of them.
_SETTINGS = {
    # Only what a test sends is on the network.
    "/proc/sys/net/ipv6/conf/default/disable_ipv6": "1",
    # As hosts with long links between them are set up: a window for 64 MiB under way, and a connection that was idle while
    # everybody computed does not begin again with ten packets.
    "/proc/sys/net/ipv4/tcp_rmem": "4096 131072 67108864",
    "/proc/sys/net/ipv4/tcp_wmem": "4096 131072 67108864",
    "/proc/sys/net/ipv4/tcp_slow_start_after_idle": "0",
    # The one that every kernel has, whatever this machine's own is: it takes a loss for congestion.
    "/proc/sys/net/ipv4/tcp_congestion_control": "reno",
}


class HostsError(Exception):
    pass


def run(*words: str) -> str:
    """What the command printed; HostsError with its own words when it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HostsError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip() or f'exit code {done.returncode}'}")
    return done.stdout


def name_of(part: str) -> str:
    return f"{_PREFIX}-{os.getpid()}-{part}"


def file_of(name: str) -> str:
    return os.path.join(_FOLDER, name)


def enter(name: str) -> list[str]:
    """What a command begins with, to run there. It becomes the command: same process, same parent."""
    return ["nsenter", f"--net={file_of(name)}", "--"]


def make(name: str) -> None:
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")
    settings = "; ".join(f"[ ! -e {path} ] || echo '{value}' >{path}" for path, value in _SETTINGS.items())
    run(*enter(name), "sh", "-ec", settings)


def remove(name: str) -> None:
    """Whatever state it is in."""
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def remove_stale() -> list[str]:
    """Those whose maker does not live any more (it was killed); their names."""
    removed = []
    for name in sorted(os.listdir(_FOLDER)) if os.path.isdir(_FOLDER) else ():
        found = _OURS.match(name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            remove(name)
            removed.append(name)
    return removed


def why_not() -> str | None:
    """Why this machine makes no namespaces with devices for us; None when it does. Tried, not guessed."""
    for tool in ("ip", "nsenter"):
        if shutil.which(tool) is None:
            return f"the program '{tool}' is missing (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "making network namespaces takes root, and this is another user"
    name = name_of("try")
    try:
        make(name)
        run("ip", "-n", name, "tuntap", "add", "dev", "eth0", "mode", "tap")
    except HostsError as error:
        return f"this machine allows no network namespaces or no devices in them: {error}"
    finally:
        remove(name)
    return None


def need_hosts() -> None:
    """setUpModule of tests here: SKIPPED where the machine has no hosts. A signal ends a test as an exception."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    reason = why_not()
    if reason is not None:
        raise unittest.SkipTest(reason)
