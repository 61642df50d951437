"""What a result was measured on and with."""
import os
import platform
import subprocess
from importlib import metadata

from ring_run import say


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8") as file:
        return next((line.partition(":")[2].strip() for line in file if line.startswith(name)), "unknown")


def _revision() -> str:
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        return subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12"],
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def describe() -> dict:
    """Says a warning if other work runs: `load_before` is how many processes wanted to run in the last minute."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.5:
        say(f"warning: this machine is busy (load {load:.1f} on {cores} cores): times will be too long, and ratios wrong")
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": cores,
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "revision": _revision(),
        # Of the packages in the module path; torch itself is never imported here.
        **{name: metadata.version(name) for name in ("torch", "deepspeed")},
        "load_before": load,
    }
