# Finds the CUDA runtime's headers and its shared library (which our programs load when they need it; nothing links it).
#
# Looked for: CUDAToolkit_ROOT, CUDA_HOME, /usr/local/cuda. Sets RingzeroCuda_FOUND, _VERSION, _ROOT and
# RINGZERO_CUDA_INCLUDE_DIR, RINGZERO_CUDA_LIBRARY_FOLDER.

find_path(RINGZERO_CUDA_INCLUDE_DIR cuda_runtime_api.h
  HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} /usr/local/cuda
  PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include
  DOC "The include folder of the CUDA toolkit")
mark_as_advanced(RINGZERO_CUDA_INCLUDE_DIR)

set(RingzeroCuda_VERSION "")
set(RingzeroCuda_ROOT "")
set(RINGZERO_CUDA_LIBRARY_FOLDER "")
if(RINGZERO_CUDA_INCLUDE_DIR)
  get_filename_component(RingzeroCuda_ROOT ${RINGZERO_CUDA_INCLUDE_DIR} DIRECTORY)
  file(STRINGS ${RINGZERO_CUDA_INCLUDE_DIR}/cuda_runtime_api.h line REGEX "define CUDART_VERSION ")
  if("${line}" MATCHES "CUDART_VERSION +([0-9]+)")
    math(EXPR ringzero_cuda_major "${CMAKE_MATCH_1} / 1000")
    math(EXPR ringzero_cuda_minor "${CMAKE_MATCH_1} % 1000 / 10")
    set(RingzeroCuda_VERSION ${ringzero_cuda_major}.${ringzero_cuda_minor})
    foreach(folder lib64 lib)
      if(NOT RINGZERO_CUDA_LIBRARY_FOLDER AND EXISTS ${RingzeroCuda_ROOT}/${folder}/libcudart.so.${ringzero_cuda_major})
        set(RINGZERO_CUDA_LIBRARY_FOLDER ${RingzeroCuda_ROOT}/${folder})
      endif()
    endforeach()
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RingzeroCuda
  REQUIRED_VARS RINGZERO_CUDA_LIBRARY_FOLDER RINGZERO_CUDA_INCLUDE_DIR
  VERSION_VAR RingzeroCuda_VERSION
  REASON_FAILURE_MESSAGE "set CUDAToolkit_ROOT to a CUDA toolkit with libcudart.so")
