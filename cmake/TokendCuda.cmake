# The CUDA toolkit, where there is one. Its headers alone are enough for tests/simt/.
set(TOKEND_CUDA_ARCHITECTURES "80-virtual;86-real;87-real;90;110-real;120-real" CACHE STRING
  "Parts to compile kernels for; ./dev's tests take fewer")
find_program(TOKEND_NVCC nvcc HINTS /usr/local/cuda/bin)
find_path(TOKEND_CUDA_INCLUDE cuda_runtime_api.h HINTS /usr/local/cuda/include)
if(TOKEND_NVCC AND NOT TOKEND_SANITIZE)
  # Both before the language: CMake would take nvcc's own default and test with it.
  set(CMAKE_CUDA_COMPILER "${TOKEND_NVCC}")
  set(CMAKE_CUDA_ARCHITECTURES "${TOKEND_CUDA_ARCHITECTURES}")
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  enable_language(CUDA)
  # CMake 3.25 does not know it of nvcc 13.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
