#!/usr/bin/env bash
# For `pip install .`: brings the LibTorch and UCX that the wheel is built with into .deps, as ./rz does. It installs no Debian
# packages: pip is no place where a user expects that.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/cmake/rz_install.sh"
if command -v dpkg-query >/dev/null; then
  missing=$(missing_packages build)
  [ -z "$missing" ] || die "Debian packages are missing: as root, run: apt-get install" $missing
fi
install_wheels
