# Whether nvcc is here and works: enables CUDA as a language and sets RINGZERO_HAVE_CUDA_KERNELS. After the option CUDA.
#
# CMAKE_CUDA_ARCHITECTURES chooses the GPUs that code is made for: by default Ampere, and from Hopper on all (newer ones
# translate Hopper's). Without GPU code: builds with sanitizers, which cannot see into it.

set(RINGZERO_HAVE_CUDA_KERNELS OFF)
if(RINGZERO_HAVE_CUDA AND NOT RINGZERO_SANITIZE AND NOT RINGZERO_FUZZ)
  find_program(RINGZERO_NVCC nvcc HINTS ${RingzeroCuda_ROOT} ${RingzeroCuda_ROOT}/../.. PATH_SUFFIXES bin DOC "CUDA's compiler")
  mark_as_advanced(RINGZERO_NVCC)
  if(RINGZERO_NVCC)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} ${RINGZERO_NVCC})
    endif()
    include(CheckLanguage)
    check_language(CUDA)  # with this host's compiler: the newest ones are too new for an older nvcc
    if(CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no newer one of nvcc
      set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # who needs it names it
      enable_language(CUDA)
      find_package(CUDAToolkit REQUIRED)
      set(RINGZERO_HAVE_CUDA_KERNELS ON)
    endif()
  endif()
  if(RINGZERO_HAVE_CUDA_KERNELS)
    list(JOIN CMAKE_CUDA_ARCHITECTURES " " ringzero_architectures)
    ringzero_summary("CUDA kernels" "nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${ringzero_architectures}")
  elseif(RINGZERO_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "RINGZERO_WITH_CUDA=ON, but there is no nvcc that works with this host's compiler: set CUDACXX and "
                        "CUDAHOSTCXX, or take RINGZERO_WITH_CUDA=AUTO to go on without kernels")
  else()
    ringzero_summary("CUDA kernels" "no nvcc that works with this host's compiler: no updates on GPUs (RINGZERO_WITH_CUDA=AUTO)")
  endif()
endif()
