# The CUDA toolkit, where there is one. Its headers alone are enough for tests/simt/.
set(TOKEND_CUDA_ARCHITECTURES "80-virtual;86-real;87-real;90;110-real;120-real" CACHE STRING
  "Parts to compile kernels for; ./dev's tests take fewer")
find_program(TOKEND_NVCC nvcc HINTS /usr/local/cuda/bin)
find_path(TOKEND_CUDA_INCLUDE cuda_runtime_api.h HINTS /usr/local/cuda/include)

# Whether libtokend_cuda.so is built: by GCC, sanitizers aside.
set(TOKEND_HAS_CUDA OFF)
if(TOKEND_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
if(NOT TOKEND_NVCC)
  message(STATUS "No nvcc: the CUDA backend is left out")
  return()
endif()
if(CMAKE_CROSSCOMPILING)
  # The runtime of the target; ./dev unpacks it. nvcc knows the host's alone.
  file(GLOB runtime "${TOKEND_ARM64_CUDA}/nvidia/*/lib/libcudart_static.a")
  if(NOT runtime)
    message(STATUS "No CUDA runtime in ${TOKEND_ARM64_CUDA}: the CUDA backend is left out")
    return()
  endif()
  get_filename_component(runtime "${runtime}" DIRECTORY)
  set(CMAKE_CUDA_FLAGS "-I${TOKEND_CUDA_INCLUDE} -L${runtime}")
endif()
# Both before the language: CMake would take nvcc's own default and test with it.
set(CMAKE_CUDA_COMPILER "${TOKEND_NVCC}")
set(CMAKE_CUDA_ARCHITECTURES "${TOKEND_CUDA_ARCHITECTURES}")
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
enable_language(CUDA)
# CMake 3.25 does not know it of nvcc 13.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(TOKEND_HAS_CUDA ON)
