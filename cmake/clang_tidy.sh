#!/usr/bin/env bash
# clang_tidy.sh BUILD_FOLDER: clang-tidy on every source that is free of LibTorch, and on all that BUILD_FOLDER compiles whether
# each use of a guarded member holds its lock (base/mutex.h). Skipped (77) where clang-tidy is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1

if ! command -v clang-tidy >/dev/null; then
  echo "clang-tidy is not here (Debian: apt-get install clang-tidy)" >&2
  exit 77
fi
# How each file is compiled by itself: not in units, and with no precompiled header of GCC's.
cmake -S . -B "$build/tidy" -G Ninja -DRINGZERO_WITH_TORCH=OFF -DRINGZERO_CCACHE=OFF >"$build/tidy.log"
rooms=()
for room in base sharding p2p offload zero integrations/data; do
  [ ! -d "$room" ] || rooms+=("$room")
done
find "${rooms[@]}" -name '*.cc' -print0 | xargs -0 -r -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build/tidy"

# As the folder compiles it, in units too; GCC's own options mean nothing to clang. A check of clang-tidy's own has to be named.
grep -oP '"file": "\K[^"]*/(base|sharding|p2p|offload|zero|integrations)/[^"]*\.(cc|cxx)(?=")' "$build/compile_commands.json" |
  grep -vE "^$PWD/(build/[^/]*/)?(tests|bench|examples)/" |
  xargs -r -d '\n' -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build" --header-filter="^$PWD/" \
    --checks='-*,clang-diagnostic-thread-safety*,misc-static-assert' \
    --extra-arg=-Wthread-safety --extra-arg=-Wno-error --extra-arg=-Wno-unknown-warning-option
