#!/usr/bin/env bash
# ./rz doctor: every component with version and place, and what is missing for which feature. Installs and changes nothing.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/cmake/rz_install.sh"
declare -A missing=()  # component -> what it is needed for: some of the words train, test, full, fuzz
order=()               # the missing components as they are printed

show() { printf '  %-17s %-25s %s\n' "$1" "$2" "${3:-}"; }

# absent NAME FEATURES HOW [STATE]
absent() {
  show "$1" "${4:-missing}" "$3"
  missing[$1]=$2
  order+=("$1")
}

# program NAME FEATURES HOW COMMAND [OPTION]: version from `COMMAND --version` (or OPTION), place from the path.
program() {
  local place
  if place=$(command -v "$4"); then
    show "$1" "$("$4" "${5:---version}" 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)" "$place"
  else
    absent "$1" "$2" "$3"
  fi
}

# The first of the places where CMake looks too that has this file.
find_file() {
  local prefix match
  local IFS=:
  for prefix in ${CMAKE_PREFIX_PATH:-} /usr/local /usr; do
    for match in "$prefix"/$1; do
      if [ -e "$match" ]; then
        echo "$match"
        return
      fi
    done
  done
  return 1
}

# library NAME PACKAGE FILE-PATTERN SED-SCRIPT: the script prints the version found in the file.
library() {
  local file
  if file=$(find_file "$3"); then
    show "$1" "$(sed -nE "$4" "$file" | tr '\n' '.' | sed 's/\.$//')" "$file"
  else
    absent "$1" "train test" "Debian: apt-get install $2"
  fi
}

compiler() {
  local name=${CXX:-c++} place
  if ! place=$(command -v ${name%% *}); then
    absent compiler "train test" "Debian: apt-get install g++"
    return
  fi
  local problem
  if problem=$( (check_compiler) 2>&1); then
    show compiler "$($name --version | head -n 1 | grep -oE '^[^ ]+|[0-9]+\.[0-9]+\.[0-9]+' | head -n 2 | tr '\n' ' ')" "$place"
  else
    absent compiler "train test" "${problem#rz: error: }" unusable
  fi
}

libtorch() {
  local folder version
  for folder in ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//:/ }} "$deps/site"; do
    for folder in "$folder" "$folder/torch"; do
      [ -e "$folder/include/torch/csrc/api/include/torch/torch.h" ] || continue
      version=$(cat "$folder"/include/torch/{headeronly/,,csrc/api/include/torch/}version.h 2>/dev/null |
        awk '$1 == "#define" && $2 ~ /^TORCH_VERSION_(MAJOR|MINOR|PATCH)$/ && !seen[$2]++ {printf "%s%s", dot, $3; dot = "."}')
      show LibTorch "$version" "$folder"
      return
    done
  done
  absent LibTorch "train test" "./rz build installs the pinned wheel"
}

ucx() {
  local folder
  for folder in ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//:/ }} "$deps/site" /usr; do
    for folder in "$folder" "$folder/libucx"; do
      [ -e "$folder/include/ucp/api/ucp_version.h" ] || continue
      show UCX "$(awk '$1 == "#define" && $2 ~ /^UCP_API_(MAJOR|MINOR)$/ {printf "%s%s", dot, $3; dot = "."}' \
        "$folder/include/ucp/api/ucp_version.h")" "$folder"
      return
    done
  done
  show UCX "not found" "no transport ucx; ./rz build installs the pinned wheel"
}

data() {
  local folder=/usr/share/datasets/fashion-mnist
  if [ "$(ls "$folder"/*-ubyte.gz 2>/dev/null | wc -l)" = 4 ]; then
    show Fashion-MNIST "$(package_version dataset-fashion-mnist)" "$folder"
  else
    absent Fashion-MNIST "train test" "Debian: apt-get install dataset-fashion-mnist"
  fi
  if [ -e /usr/lib/bible.data ]; then
    show "King James Bible" "$(package_version bible-kjv-text)" /usr/lib/bible.data
  else
    absent "King James Bible" "train test" "Debian: apt-get install bible-kjv-text"
  fi
}

package_version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || echo "version unknown"; }

gpu() {
  local nvcc
  if nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null); then
    show "CUDA toolkit" "$("$nvcc" --version | grep -oE 'release [0-9.]+' | cut -d ' ' -f 2)" "$nvcc"
  else
    show "CUDA toolkit" "not found" "no kernels for GPUs; no transport nccl, which needs it and NCCL"
  fi
  local gpus
  gpus=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null) || gpus=
  if [ -n "$gpus" ]; then
    while read -r line; do show GPU "$line"; done <<<"$gpus"
  else
    show GPU "none seen" "nothing built today uses one"
  fi
}

# Which engine reads and writes checkpoints and what streams to NVMe: asks the kernel for a ring, as the program does.
io_engine() {
  local answer sysctl=/proc/sys/kernel/io_uring_disabled
  answer=$(python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
ring = libc.syscall(425, 1, ctypes.create_string_buffer(120))  # io_uring_setup
print("" if ring >= 0 else os.strerror(ctypes.get_errno()))' 2>/dev/null) || answer="not known without Python"
  if [ -z "$answer" ]; then
    show "file engine" io_uring "allowed here"
  else
    show "file engine" threads "io_uring: $answer; $sysctl is $(cat "$sysctl" 2>/dev/null || echo "not there")"
  fi
}

limits() {
  local memlock
  memlock=$(ulimit -l)
  [ "$memlock" = unlimited ] || memlock="$memlock KiB"
  show cores "$(nproc)"
  show memory "$(awk '/^MemTotal/ {t = $2} /^MemAvailable/ {a = $2} END {printf "%.1f GiB, %.1f free", t / 1048576, a / 1048576}' /proc/meminfo)"
  show "/dev/shm" "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {printf "%.1f GiB, %.1f free", $2 / 1048576, $4 / 1048576}')"
  show memlock "$memlock" "most memory that a process may lock (ulimit -l)"
  show "disk here" "$(free_mib "$root") MiB free" "$root"
}

# feature WORD TEXT: ready, or what it lacks.
feature() {
  local lacks= name
  for name in "${order[@]}"; do
    [[ " ${missing[$name]} " != *" $1 "* ]] || lacks+="${lacks:+, }$name"
  done
  if [ -z "$lacks" ]; then
    printf '  %-24s ready\n' "$2"
  else
    printf '  %-24s lacks %s; the command installs what it can\n' "$2" "$lacks"
  fi
}

echo "system           $(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-unknown}"), $(uname -sr), $(uname -m)"
echo "components"
compiler
program CMake "train test" "Debian: apt-get install cmake" cmake
program Ninja "train test" "Debian: apt-get install ninja-build" ninja
program Python "train test" "Debian: apt-get install python3" python3
libtorch
ucx
library Abseil libabsl-dev 'include/absl/base/config.h' 's/^#define ABSL_LTS_RELEASE_VERSION ([0-9]+).*/\1/p'
library Highway libhwy-dev 'include/hwy/highway.h' 's/^#define HWY_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p'
library GoogleTest "libgtest-dev libgmock-dev" 'lib*/*/pkgconfig/gtest.pc' 's/^Version: *//p'
library nlohmann-json nlohmann-json3-dev 'include/nlohmann/detail/*macro*.hpp' 's/^#define NLOHMANN_JSON_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p'
library CLI11 libcli11-dev 'include/CLI/Version.hpp' 's/^#define CLI11_VERSION "([0-9.]+).*/\1/p'
library jemalloc libjemalloc-dev 'include/jemalloc/jemalloc.h' 's/^#define JEMALLOC_VERSION "([0-9.]+).*/\1/p'
library liburing liburing-dev 'lib*/*/pkgconfig/liburing.pc' 's/^Version: *//p'
library zlib zlib1g-dev 'include/zlib.h' 's/^#define ZLIB_VERSION "(.*)"/\1/p'
library OpenSSL libssl-dev 'include/openssl/opensslv.h' 's/^# *define OPENSSL_VERSION_STR "(.*)"/\1/p'
library xxHash libxxhash-dev 'include/xxhash.h' 's/^#define XXH_VERSION_(MAJOR|MINOR|RELEASE) +([0-9]+).*/\2/p'
data
program ccache "" "Debian: apt-get install ccache (a second build is faster)" ccache
program mold "" "Debian: apt-get install mold (links faster)" mold
program clang-format "test" "Debian: apt-get install clang-format" clang-format
program iproute2 "test" "Debian: apt-get install iproute2" ip -V
program clang-tidy "full" "Debian: apt-get install clang-tidy" clang-tidy
program clang "fuzz" "Debian: apt-get install clang libclang-rt-dev" clang++
gpu
io_engine
limits
echo "features"
feature train "./rz train, ./rz plan"
feature test "./rz test"
feature full "./rz test --full (lint)"
feature fuzz "./rz test --full (fuzzing)"
exit 0
