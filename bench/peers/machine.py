"""What a result was measured on and with."""
import os
import platform
import subprocess

from ring_run import say


def _first_line(path: str, begins: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith(begins):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown"


def _versions() -> dict[str, str]:
    """Of the packages in the module path; torch itself is never imported here."""
    from importlib import metadata
    return {name: metadata.version(name) for name in ("torch", "deepspeed")}


def _revision() -> str:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        return subprocess.run(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12"],
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def describe() -> dict:
    """Says a warning if other work runs: `load_before` is how many processes wanted to run in the last minute."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.5:
        say(f"warning: this machine is busy (load {load:.1f} on {cores} cores): times will be too long, and ratios wrong")
    return {
        "processor": _first_line("/proc/cpuinfo", "model name"),
        "cores": cores,
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "revision": _revision(),
        **_versions(),
        "load_before": load,
    }
