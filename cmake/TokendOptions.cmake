# Language level, warnings and the build-wide switches.
option(TOKEND_BUILD_TESTS "Build the tests and benchmarks" ON)
option(TOKEND_BUILD_FUZZERS "Build the libFuzzer targets (clang only)" OFF)
set(TOKEND_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined or thread")
set(TOKEND_VENV "${CMAKE_SOURCE_DIR}/build/venv" CACHE PATH
  "Python environment with the packages of cmake/requirements.txt; ./dev makes it")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(TOKEND_CCACHE ccache)
if(TOKEND_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${TOKEND_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TOKEND_CCACHE}")
endif()

# Results must not depend on which call site a compiler chose to fuse: a fused
# multiply-add is written out where it is wanted.
add_compile_options(-ffp-contract=off -fno-strict-aliasing)

# gRPC's link interface names dozens of libraries that we never call; mapping
# them costs start-up time and memory.
add_link_options(-Wl,--as-needed)

# A target opts out with the property TOKEND_UNSANITIZED (see tokend_library).
if(TOKEND_SANITIZE)
  foreach(flag -fsanitize=${TOKEND_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_compile_options("$<$<NOT:$<BOOL:$<TARGET_PROPERTY:TOKEND_UNSANITIZED>>>:${flag}>")
  endforeach()
  add_link_options(-fsanitize=${TOKEND_SANITIZE})
endif()

# Warnings are errors in our own code; generated code is exempt.
add_library(tokend_warnings INTERFACE)
target_compile_options(tokend_warnings INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wno-missing-field-initializers  # designated initialisers leave the rest to its defaults
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wno-unused-command-line-argument>)
if(TOKEND_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC loses track of values behind the sanitizers' own checks, in std::regex for one.
  target_compile_options(tokend_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
