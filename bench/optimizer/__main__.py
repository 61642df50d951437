"""The command `./rz bench optimizer`: AdamW's elements per second beside torch's fused one and DeepSpeed's CPU kernel.

One run of optimizer_perf for each size, in which all take turns.
"""
import argparse
import glob
import os
import subprocess
import sys
import tarfile

from ring_run import BenchError, run_command, say

_DEEPSPEED = "0.19.8"
_HERE = os.path.dirname(os.path.abspath(__file__))
_SITE = os.path.join(os.path.dirname(os.path.dirname(_HERE)), ".deps", "site")


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./rz bench optimizer", allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--elements", nargs="+", type=int, default=[25_000_000, 200_000_000], metavar="N",
                        help="[25000000 200000000]")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="[2]")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="[15]")
    parser.add_argument("--out", default="build/bench-optimizer", metavar="DIR", help="[build/bench-optimizer]")
    parser.add_argument("--program", required=True, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise BenchError(f"'{' '.join(command)}' ended with exit code {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def _simd() -> list[str]:
    """What DeepSpeed's builder asks the compiler for on this processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
    if "avx512f" in flags:
        return ["-march=native", "-D__AVX512__"]
    return ["-march=native", "-D__AVX256__"] if "avx2" in flags else ["-march=native"]


def _build_deepspeed(folder: str) -> str:
    """DeepSpeed's kernel as a library; it is downloaded and built once."""
    library = os.path.join(folder, "libdeepspeed_adam.so")
    if os.path.exists(library):
        return library
    say(f"downloading and building the kernel of DeepSpeed {_DEEPSPEED}")
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
          "--dest", folder, f"deepspeed=={_DEEPSPEED}"], {**os.environ, "DS_BUILD_OPS": "0"})
    archive, = glob.glob(os.path.join(folder, f"deepspeed-{_DEEPSPEED}.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    sources = os.path.join(folder, f"deepspeed-{_DEEPSPEED}", "csrc")
    # All that the kernel takes from torch's header for Python extensions.
    stub = os.path.join(folder, "stub", "torch")
    os.makedirs(stub, exist_ok=True)
    with open(os.path.join(stub, "extension.h"), "w", encoding="utf-8") as file:
        file.write("#include <torch/types.h>\n#include <cmath>\n")
    torch = os.path.join(_SITE, "torch")
    _run(["g++", "-O3", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-w", "-D__DISABLE_CUDA__", *_simd(),
          f"-I{os.path.dirname(stub)}", f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include",
          f"-I{sources}/includes", f"-I{sources}/adam", os.path.join(_HERE, "deepspeed_adam.cc"),
          f"-L{torch}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch}/lib", "-o", library])
    return library


def _bench(options: argparse.Namespace, command: str) -> str:
    library = _build_deepspeed(os.path.abspath(options.out))
    program = os.path.join(os.path.dirname(options.program), "optimizer_perf")
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    document = ["# Updates", "", f"`{command}` made this, with DeepSpeed {_DEEPSPEED}: medians of {options.rounds} rounds in which all "
                "take turns (bench/optimizer/optimizer_perf.cc says what is counted).", ""]
    for elements in options.elements:
        say(f"{elements} elements")
        table = _run([program, "--elements", str(elements), "--threads", str(options.threads), "--rounds", str(options.rounds),
                      "--deepspeed", library], environment)
        document += ["```", table.rstrip(), "```", ""]
    with open(os.path.join(options.out, "optimizer.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(document))
    return "\n".join(document)


if __name__ == "__main__":
    sys.exit(run_command("optimizer", _parse, _bench, sys.argv[1:]))
