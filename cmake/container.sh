#!/usr/bin/env bash
# The two steps of the container image (Dockerfile), on Debian 12, in a clone at the place where the image will have it:
#   cmake/container.sh build   builds ringzero and ring_perf into bin/ and leaves of .deps and build what they need to run
#   cmake/container.sh run     installs the Debian packages that they need to run, with the example data
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/cmake/rz_install.sh"
. "$root/cmake/rz_build.sh"

# prune: of .deps stay the shared libraries that the programs are linked with, and UCX, which they load, with its settings.
prune() {
  local kept=$root/kept library folder
  {
    ldd "$root"/bin/* | awk -v deps="$deps/" 'index($3, deps) == 1 {print $3}' | xargs realpath -s
    find "$deps/site/libucx/lib" -name '*.so'
  } | while read -r library; do
    folder=$kept/$(dirname "${library#"$deps/"}")
    mkdir -p "$folder"
    cp -a "${library%.so*}".so* "$folder/"  # it goes by several names: links to one file
  done
  cp -a "$deps/site/libucx/etc" "$kept/site/libucx/"
  rm -rf "$deps" "$root/build"
  mv "$kept" "$deps"
}

case ${1:-} in
  build)
    install_all build
    build release ringzero ring_perf
    mkdir -p "$root/bin"
    cp "$root/build/bin/ringzero" "$root/build/bin/ring_perf" "$root/bin/"
    prune
    "$root/bin/ringzero" help >/dev/null
    ;;
  run)
    install_packages run data
    rm -rf /var/lib/apt/lists/* "$deps/log"
    "$root/bin/ringzero" help >/dev/null
    ;;
  *)
    sed -n '2,4p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
