# Finds NCCL's header and its shared library (which our programs load when they need it; nothing links it). It needs CUDA.
#
# Looked for: NCCL_ROOT, the wheel in .deps/site/nvidia/nccl, the CUDA toolkit's folder, the system's. Sets
# RingzeroNccl_FOUND, _VERSION, _ROOT and RINGZERO_NCCL_INCLUDE_DIR, RINGZERO_NCCL_LIBRARY_FOLDER.

find_path(RINGZERO_NCCL_INCLUDE_DIR nccl.h
  HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${RINGZERO_CUDA_INCLUDE_DIR} ${CMAKE_CURRENT_LIST_DIR}/../.deps/site/nvidia/nccl
  PATH_SUFFIXES include
  DOC "The include folder of NCCL")
find_library(RINGZERO_NCCL_LIBRARY NAMES libnccl.so.2 nccl
  HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${RINGZERO_NCCL_INCLUDE_DIR}/.. ${RINGZERO_CUDA_LIBRARY_FOLDER}
  PATH_SUFFIXES lib lib64
  DOC "NCCL's shared library")
mark_as_advanced(RINGZERO_NCCL_INCLUDE_DIR RINGZERO_NCCL_LIBRARY)

set(RingzeroNccl_VERSION "")
set(RingzeroNccl_ROOT "")
set(ringzero_nccl_new_enough "")
if(RINGZERO_NCCL_INCLUDE_DIR AND RINGZERO_NCCL_LIBRARY)
  get_filename_component(RINGZERO_NCCL_LIBRARY_FOLDER ${RINGZERO_NCCL_LIBRARY} DIRECTORY)
  get_filename_component(RingzeroNccl_ROOT ${RINGZERO_NCCL_INCLUDE_DIR} DIRECTORY)
  set(ringzero_nccl_parts "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${RINGZERO_NCCL_INCLUDE_DIR}/nccl.h line REGEX "define NCCL_${part} ")
    if("${line}" MATCHES "NCCL_${part} +([0-9]+)")
      list(APPEND ringzero_nccl_parts ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN ringzero_nccl_parts "." RingzeroNccl_VERSION)
  if(RingzeroNccl_VERSION VERSION_GREATER_EQUAL 2.28)
    set(ringzero_nccl_new_enough TRUE)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RingzeroNccl
  REQUIRED_VARS RINGZERO_NCCL_LIBRARY_FOLDER RINGZERO_NCCL_INCLUDE_DIR ringzero_nccl_new_enough RINGZERO_HAVE_CUDA
  VERSION_VAR RingzeroNccl_VERSION
  REASON_FAILURE_MESSAGE "NCCL 2.28 or newer and the CUDA runtime are needed: set NCCL_ROOT")
