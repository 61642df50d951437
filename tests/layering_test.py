#!/usr/bin/env python3
"""Fails on an #include that points up the table of docs/architecture.md, or on a library's header outside its place.

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

# A library's headers -> the only files that may include them: the sources of their own implementation.
LIBRARIES = (
    (r"uc[pst]/|uc[pst]\.h", r"/ucx[^/]*\.cc$"),
    (r"nccl.*\.h", r"/nccl[^/]*\.cc$|p2p/nccl/nccl_api\.h$"),
    (r"cuda.*\.h|cuda/|driver_types\.h", r"cuda.*\.(cc|cu)$|/nccl[^/]*\.cc$|p2p/nccl/nccl_api\.h$"),
    (r"p2p/nccl/nccl_api\.h", r"p2p/nccl/nccl[^/]*\.cc$"),  # the table of functions, for those sources alone
    (r"liburing", r"uring.*\.cc$"),
    (r"hwy/", r"^(zero/update/((narrow|matrix)_)?kernels\.cc$|tests/)"),  # what it sets for the preprocessor stays in one file
    (r"torch/|c10/|ATen/|caffe2/", r"^(integrations/torch|tests|bench|examples)/"),
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
    if room in ROOMS and target in ("bench", "examples", "tests"):
        return f"points up: nothing in {room} may depend on {target}"
    if room == "sharding" and re.match(IMPURE, header):
        return "is not for sharding: no thread, clock, file or socket there"
    for headers, files in LIBRARIES:
        if re.match(headers, header) and not re.search(files, path):
            return f"may be included only in files matching {files}"
    return None


def problems(root):
    """Every bad include below root, as lines; and how many includes were read."""
    found, count = [], 0
    for folder, folders, files in os.walk(root):
        if folder == root:
            folders[:] = [f for f in folders if f in ROOMS + ("bench", "examples", "tests")]
        for file in sorted(files):
            if not file.endswith((".h", ".cc", ".cu", ".cuh", ".inc")):
                continue
            full = os.path.join(folder, file)
            path = os.path.relpath(full, root)
            with open(full, encoding="utf-8") as source:
                text = source.read()
            for match in INCLUDE.finditer(text):
                count += 1
                what = problem(path, *match.groups())
                if what:
                    line = text.count("\n", 0, match.start()) + 1
                    found.append(f"{path}:{line}: #include of {match.group(2)} {what}")
    return found, count


BAD = (
    ("base/a.h", '#include "sharding/op.h"'),
    ("base/a.cc", '#include "tests/support/a.h"'),
    ("sharding/a.cc", '  #  include "zero/engine.h"'),
    ("sharding/b/a.h", "#include <chrono>"),
    ("p2p/a.cc", '#include "sharding/op.h"'),
    ("p2p/a.cc", '#include "transport.h"'),
    ("offload/a.cc", '#include "p2p/transport.h"'),
    ("zero/a.cc", '#include "integrations/data/dataset.h"'),
    ("zero/a.h", "#include <torch/torch.h>"),
    ("integrations/cli/a.cc", "#include <ATen/ATen.h>"),
    ("p2p/transport.cc", "#include <ucp/api/ucp.h>"),
    ("p2p/ucx/ucx_transport.h", "#include <ucp/api/ucp.h>"),
    ("p2p/shm.cc", "#include <cuda_runtime.h>"),
    ("zero/a.cc", "#include <nccl.h>"),
    ("zero/update/cuda/cuda_kernels.h", "#include <cuda_runtime_api.h>"),
    ("zero/update/kernels.h", "#include <hwy/highway.h>"),
    ("p2p/nccl/nccl_lane.h", "#include <nccl.h>"),
    ("p2p/nccl/lane.cc", '#include "p2p/nccl/nccl_api.h"'),
    ("offload/a.cc", "#include <liburing.h>"),
)
GOOD = (
    ("base/a.cc", '#include "base/a.h"\n#include <chrono>\n#include "absl/status/status.h"'),
    ("sharding/a.cc", '#include "base/ids.h"\n// #include "zero/engine.h"'),
    ("p2p/ucx/ucx_transport.cc", "#include <ucp/api/ucp.h>"),
    ("p2p/nccl/nccl_api.h", "#include <nccl.h>\n#include <cuda_runtime_api.h>"),
    ("p2p/nccl/nccl_lane.cc", '#include "p2p/nccl/nccl_api.h"'),
    ("p2p/nccl/nccl_lane.cc", "#include <nccl.h>\n#include <cuda_runtime.h>"),
    ("zero/update/cuda/cuda_launch.cu", '#include <cuda_runtime.h>\n#include "zero/update/cuda/cuda_formulas.h"'),
    ("offload/uring_file.cc", "#include <liburing.h>"),
    ("zero/a.cc", '#include "p2p/transport.h"\n#include "offload/a.h"'),
    ("integrations/torch/a.h", '#include <torch/torch.h>\n#include "zero/engine.h"'),
    ("tests/torch/a.cc", '#include <torch/torch.h>\n#include "tests/support/a.h"'),
)


def check_itself():
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
