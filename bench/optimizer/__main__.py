"""The command `./rz bench optimizer`: AdamW's elements per second beside torch's fused one and
DeepSpeed's CPU kernel.

One run of optimizer_perf for each size, in which all take turns.
"""
import glob
import os
import re
import sys
import tarfile

from ring_run import Options, bench_parser, main, positive, run, say

_HERE = os.path.dirname(os.path.abspath(__file__))
_PINNED = os.path.join(os.path.dirname(_HERE), "peers", "requirements-deepspeed.txt")
_SITE = os.path.join(os.path.dirname(os.path.dirname(_HERE)), ".deps", "site")


def _deepspeed_version() -> str:
    with open(_PINNED, encoding="utf-8") as file:
        return re.search(r"^deepspeed==(\S+)", file.read(), re.MULTILINE).group(1)


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
    say(f"downloading and building the kernel of DeepSpeed {_deepspeed_version()}")
    # Pinned, with its hash, as for the benchmarks that run DeepSpeed.
    run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
         "--no-binary", "deepspeed", "--dest", folder, "-r", _PINNED], {"DS_BUILD_OPS": "0"})
    archive, = glob.glob(os.path.join(folder, "deepspeed-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    sources = os.path.join(archive.removesuffix(".tar.gz"), "csrc")
    # All that the kernel takes from torch's header for Python extensions.
    stub = os.path.join(folder, "stub", "torch")
    os.makedirs(stub, exist_ok=True)
    with open(os.path.join(stub, "extension.h"), "w", encoding="utf-8") as file:
        file.write("#include <torch/types.h>\n#include <cmath>\n")
    torch = os.path.join(_SITE, "torch")
    includes = (os.path.dirname(stub), f"{torch}/include", f"{sources}/includes", f"{sources}/adam",
                f"{torch}/include/torch/csrc/api/include")
    run(["g++", "-O3", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-w", "-D__DISABLE_CUDA__",
         *_simd(), *(f"-I{include}" for include in includes),
         os.path.join(_HERE, "deepspeed_adam.cc"),
         f"-L{torch}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch}/lib", "-o", library])
    return library


def _bench(options: Options, command: str) -> list[str]:
    library = _build_deepspeed(os.path.abspath(options.out))
    program = os.path.join(os.path.dirname(options.program), "optimizer_perf")
    document = ["# Updates", "",
                f"`{command}` made this, with DeepSpeed {_deepspeed_version()}: medians of "
                f"{options.rounds} rounds in which all take turns "
                "(bench/optimizer/optimizer_perf.cc says what is counted)."]
    threads = str(options.threads)
    for elements in options.elements:
        say(f"{elements} elements")
        printed = run([program, "--elements", str(elements), "--threads", threads, "--rounds",
                       str(options.rounds), "--deepspeed", library], {"OMP_NUM_THREADS": threads})
        document += ["", "```", printed.rstrip(), "```"]
    return document


if __name__ == "__main__":
    PARSER = bench_parser("optimizer", __doc__, rounds=15)
    PARSER.add_argument("--elements", nargs="+", type=positive, default=[25_000_000, 200_000_000],
                        metavar="N", help="[25000000 200000000]")
    PARSER.add_argument("--threads", type=positive, default=2, metavar="N", help="[2]")
    main(PARSER, _bench)
