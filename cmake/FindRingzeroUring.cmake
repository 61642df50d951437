# Finds liburing. Sets RingzeroUring_FOUND, _VERSION and _ROOT, RINGZERO_URING_INCLUDE_DIR and RINGZERO_URING_LIBRARY: the
# static library where there is one, so that a program needs none where it runs.
find_path(RINGZERO_URING_INCLUDE_DIR liburing.h)
find_library(RINGZERO_URING_LIBRARY NAMES liburing.a uring)
mark_as_advanced(RINGZERO_URING_INCLUDE_DIR RINGZERO_URING_LIBRARY)

if(RINGZERO_URING_LIBRARY)
  get_filename_component(ringzero_folder "${RINGZERO_URING_LIBRARY}" DIRECTORY)
  file(GLOB ringzero_pc "${ringzero_folder}/pkgconfig/liburing.pc")
  if(ringzero_pc)
    file(STRINGS "${ringzero_pc}" ringzero_line REGEX "^Version:")
    string(REGEX REPLACE "^Version: *" "" RingzeroUring_VERSION "${ringzero_line}")
  endif()
endif()
set(RingzeroUring_ROOT "${RINGZERO_URING_LIBRARY}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RingzeroUring
  REQUIRED_VARS RINGZERO_URING_LIBRARY RINGZERO_URING_INCLUDE_DIR VERSION_VAR RingzeroUring_VERSION)
