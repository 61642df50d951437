#!/usr/bin/env python3
"""Fails on an #include that points up the table of docs/architecture.md, on a library's header outside its place, and on
LibTorch's headers where nothing computes: only integrations/torch may reach them, by whatever way.

usage: layering_test.py [ROOT]. It first checks itself: each planted bad include must be found, each good one let pass.
"""
import os
import re
import sys
import tempfile

ROOMS = ("base", "sharding", "p2p", "offload", "zero", "integrations")

# Room -> rooms that it may include, besides itself. Folders not named here (bench, examples, tests) may include everything.
MAY_INCLUDE = {
    "base": (),
    "sharding": ("base",),
    "p2p": ("base",),
    "offload": ("base", "sharding"),
    "zero": ("base", "sharding", "p2p", "offload"),
    "integrations": ("base", "sharding", "p2p", "offload", "zero"),
}

# Rooms within a room: each may include those before it. What lies beside them is for all.
INNER = {"sharding": ("rules", "program", "memory", "check", "study")}

# Who includes these waits ten seconds more for each file; what plans, prints or reports need not.
TORCH = r"(torch|c10|ATen|caffe2)/"
MAY_REACH_TORCH = r"^(integrations/torch|python|tests|bench|examples)/"

# A library's headers -> the only files that may include them: the sources of their own implementation.
LIBRARIES = (
    (r"uc[pst]/|uc[pst]\.h", r"/ucx[^/]*\.cc$"),
    (r"nccl.*\.h", r"/nccl[^/]*\.cc$"),
    (r"cuda.*\.h|cuda/|driver_types\.h", r"cuda.*\.(cc|cu)$|/nccl[^/]*\.cc$"),
    (r"liburing", r"uring.*\.cc$"),
    (r"hwy/", r"^(zero/optimizer/(matrix_)?kernels\.cc$|tests/)"),  # what it sets for the preprocessor stays in one file
    (r"openssl/", r"^base/"),
    (r"CLI/", r"^(integrations/cli/command_line\.cc|bench/.*\.cc|tests/hosts/link\.cc)$"),  # slow to compile
    (TORCH, MAY_REACH_TORCH),
)

# The plan is pure: no thread, clock, file or socket.
IMPURE = r"(thread|mutex|shared_mutex|condition_variable|future|chrono|ctime|time\.h|fstream|filesystem" \
         r"|unistd\.h|fcntl\.h|sys/.*|absl/(time|synchronization)/.*)$"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def problem(path, quote, header):
    """What is wrong with `path` including `header`, or None."""
    room, target = path.split("/")[0], header.split("/")[0]
    if quote == '"' and "/" not in header:
        return "is not written from the project's root"
    if room in MAY_INCLUDE and target in ROOMS and target != room and target not in MAY_INCLUDE[room]:
        return f"points up: {room} may include {', '.join(MAY_INCLUDE[room]) or 'no other room'}"
    inner = INNER.get(room, ())
    if target == room and path.split("/")[1] in inner and header.split("/")[1] in inner:
        if inner.index(header.split("/")[1]) > inner.index(path.split("/")[1]):
            return f"points up: the rooms of {room} are {', '.join(inner)}, and each may include those before it"
    if room in ROOMS and target in ("bench", "examples", "tests"):
        return f"points up: nothing in {room} may depend on {target}"
    if room == "sharding" and re.match(IMPURE, header):
        return "is not for sharding: no thread, clock, file or socket there"
    for headers, files in LIBRARIES:
        if re.match(headers, header) and not re.search(files, path):
            return f"may be included only in files matching {files}"
    return None


def sources(root):
    """Every source and header below root: its path and its text."""
    for folder, folders, files in os.walk(root):
        if folder == root:
            folders[:] = [f for f in folders if f in ROOMS + ("bench", "examples", "tests")]
        for file in sorted(files):
            if file.endswith((".h", ".cc", ".cu", ".cuh", ".inc")):
                full = os.path.join(folder, file)
                with open(full, encoding="utf-8") as source:
                    yield os.path.relpath(full, root), source.read()


def ways_to_torch(includes):
    """For each file that reaches LibTorch's headers through others, though it must not: the way, as a line."""
    for path in sorted(includes):
        if re.search(MAY_REACH_TORCH, path):
            continue
        seen, ways = {path}, [[path]]
        while ways:
            way = ways.pop(0)
            headers = includes.get(way[-1], [])
            if len(way) > 1 and any(re.match(TORCH, header) for header in headers):
                yield f"{' includes '.join(way)}, which includes LibTorch's headers"
                break
            for header in headers:
                if header in includes and header not in seen:
                    seen.add(header)
                    ways.append(way + [header])


def problems(root):
    """Every bad include below root, as lines; and how many includes were read."""
    found, count, includes = [], 0, {}
    for path, text in sources(root):
        includes[path] = []
        for match in INCLUDE.finditer(text):
            count += 1
            includes[path].append(match[2])
            what = problem(path, *match.groups())
            if what:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{line}: #include of {match.group(2)} {what}")
    return found + list(ways_to_torch(includes)), count


BAD = (
    ("base/a.h", '#include "sharding/op.h"'),
    ("base/a.cc", '#include "tests/support/a.h"'),
    ("sharding/a.cc", '  #  include "zero/engine.h"'),
    ("sharding/b/a.h", "#include <chrono>"),
    ("sharding/rules/a.h", '#include "sharding/program/block.h"'),
    ("p2p/a.cc", '#include "sharding/op.h"'),
    ("p2p/a.cc", '#include "transport.h"'),
    ("offload/a.cc", '#include "p2p/transport.h"'),
    ("zero/a.cc", '#include "integrations/data/dataset.h"'),
    ("zero/a.h", "#include <torch/torch.h>"),
    ("integrations/cli/a.cc", "#include <ATen/ATen.h>"),
    ("integrations/cli/main.cc", "#include <CLI/CLI.hpp>"),
    ("p2p/transport.cc", "#include <ucp/api/ucp.h>"),
    ("p2p/ucx/ucx_transport.h", "#include <ucp/api/ucp.h>"),
    ("p2p/shm.cc", "#include <cuda_runtime.h>"),
    ("zero/a.cc", "#include <nccl.h>"),
    ("zero/optimizer/cuda/cuda_kernels.h", "#include <cuda_runtime_api.h>"),
    ("zero/optimizer/kernels.h", "#include <hwy/highway.h>"),
    ("p2p/nccl/nccl_transport.h", "#include <nccl.h>"),
    ("p2p/nccl/lane.cc", "#include <nccl.h>"),
    ("offload/a.cc", "#include <liburing.h>"),
    ("p2p/a.cc", "#include <openssl/evp.h>"),
)
GOOD = (
    ("base/a.cc", '#include "base/a.h"\n#include <chrono>\n#include "absl/status/status.h"'),
    ("sharding/a.cc", '#include "base/ids.h"\n// #include "zero/engine.h"'),
    ("base/crypto.cc", "#include <openssl/evp.h>"),
    ("p2p/ucx/ucx_transport.cc", "#include <ucp/api/ucp.h>"),
    ("p2p/nccl/nccl_lane.cc", "#include <nccl.h>\n#include <cuda_runtime.h>"),
    ("zero/optimizer/cuda/cuda_launch.cu", '#include <cuda_runtime.h>\n#include "zero/optimizer/cuda/cuda_formulas.h"'),
    ("offload/uring_file.cc", "#include <liburing.h>"),
    ("zero/a.cc", '#include "p2p/transport.h"\n#include "offload/a.h"'),
    ("integrations/torch/a.h", '#include <torch/torch.h>\n#include "zero/engine.h"'),
    ("tests/torch/a.cc", '#include <torch/torch.h>\n#include "tests/support/a.h"'),
)


# The files behind an #include of the first: how many of them reach LibTorch though they must not.
WAYS = (
    (1, ("integrations/cli/a.cc", '#include "integrations/torch/b.h"'),
     ("integrations/torch/b.h", '#include "integrations/torch/c.h"'), ("integrations/torch/c.h", "#include <torch/torch.h>")),
    (0, ("integrations/cli/a.cc", '#include "integrations/torch/b.h"'),
     ("integrations/torch/b.h", '#include "zero/layout.h"'), ("integrations/torch/b.cc", "#include <torch/torch.h>")),
    (0, ("integrations/torch/a.cc", '#include "integrations/torch/b.h"'), ("integrations/torch/b.h", "#include <ATen/ATen.h>")),
)


def check_ways():
    for expected, *files in WAYS:
        found = list(ways_to_torch({path: [match[2] for match in INCLUDE.finditer(text)] for path, text in files}))
        if len(found) != expected:
            sys.exit(f"self-check: {files}: expected {expected} ways to LibTorch, found {found}")


def check_itself():
    check_ways()
    for cases, expected in ((BAD, 1), (GOOD, 0)):
        for path, text in cases:
            with tempfile.TemporaryDirectory() as root:
                os.makedirs(os.path.join(root, os.path.dirname(path)))
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write("// A planted file.\n" + text + "\n")
                found, _ = problems(root)
                if len(found) != expected:
                    sys.exit(f"self-check: {path} with {text!r}: expected {expected} problems, found {found}")


def main():
    check_itself()
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found, count = problems(root)
    print("\n".join(found + [f"{count} includes read, {len(found)} bad"]))
    if not count:
        sys.exit("no include found: is this the project's root?")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
