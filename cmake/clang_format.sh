#!/usr/bin/env bash
# Formats every C++ file of the project (--write), or lists those that are not formatted and fails (--check).
# Versions of clang-format disagree about details, so the one of Debian 12 decides; with another --check is skipped (77).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=14

tool=
for candidate in "clang-format-$version" clang-format; do
  if command -v "$candidate" >/dev/null && [[ "$("$candidate" --version)" == *"version $version."* ]]; then
    tool=$candidate
    break
  fi
done
if [ -z "$tool" ]; then
  echo "clang-format $version is not here (Debian 12: apt-get install clang-format)" >&2
  exit 77
fi

files() {
  find . \( -path ./build -o -path ./.deps -o -path ./.git \) -prune -o \
    -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -print0
}

case ${1:-} in
  --write) files | xargs -0 -r "$tool" -i --style=file ;;
  --check)
    bad=$(files | xargs -0 -r "$tool" --dry-run --style=file 2>&1 | sed -n 's/^\(\.[^:]*\):.*warning: code should be clang-formatted.*/\1/p' | sort -u)
    if [ -n "$bad" ]; then
      printf 'not formatted; ./rz format does it:\n%s\n' "$bad" >&2
      exit 1
    fi
    ;;
  *)
    echo "usage: clang_format.sh --write | --check" >&2
    exit 2
    ;;
esac
