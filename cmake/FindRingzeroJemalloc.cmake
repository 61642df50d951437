# Finds jemalloc. Sets RingzeroJemalloc_FOUND, _VERSION and _ROOT, and makes the target ringzero::jemalloc.
find_path(RINGZERO_JEMALLOC_INCLUDE_DIR jemalloc/jemalloc.h)
find_library(RINGZERO_JEMALLOC_LIBRARY jemalloc)
mark_as_advanced(RINGZERO_JEMALLOC_INCLUDE_DIR RINGZERO_JEMALLOC_LIBRARY)

if(RINGZERO_JEMALLOC_INCLUDE_DIR)
  file(STRINGS "${RINGZERO_JEMALLOC_INCLUDE_DIR}/jemalloc/jemalloc.h" ringzero_line REGEX "define JEMALLOC_VERSION ")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" RingzeroJemalloc_VERSION "${ringzero_line}")
endif()
set(RingzeroJemalloc_ROOT "${RINGZERO_JEMALLOC_LIBRARY}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RingzeroJemalloc
  REQUIRED_VARS RINGZERO_JEMALLOC_LIBRARY RINGZERO_JEMALLOC_INCLUDE_DIR VERSION_VAR RingzeroJemalloc_VERSION)

if(RingzeroJemalloc_FOUND AND NOT TARGET ringzero::jemalloc)
  add_library(ringzero::jemalloc UNKNOWN IMPORTED)
  set_target_properties(ringzero::jemalloc PROPERTIES IMPORTED_LOCATION "${RINGZERO_JEMALLOC_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${RINGZERO_JEMALLOC_INCLUDE_DIR}")
endif()
