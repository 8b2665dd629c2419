# The functions that every folder's CMakeLists.txt uses.

# One library per folder: tokend_library(name SOURCES ... DEPS ... [GENERATED] [UNINSTRUMENTED]).
# Static, except in preset tsan when UNINSTRUMENTED or GENERATED.
#
# GENERATED: protoc's output under ${CMAKE_CURRENT_BINARY_DIR}, which is a SYSTEM
# include path for its users. No warnings, never sanitized, no clang-tidy.
#
# UNINSTRUMENTED: files that sit between Debian's uninstrumented gRPC and us.
# ThreadSanitizer cannot see gRPC's own synchronisation and would report correct
# programs, so in preset tsan they are compiled without it into a shared library,
# which TSAN_OPTIONS=ignore_noninstrumented_modules=1 then tells apart.
function(tokend_library name)
  cmake_parse_arguments(ARG "GENERATED;UNINSTRUMENTED" "" "SOURCES;DEPS" ${ARGN})
  set(tsan_shared OFF)
  if("${TOKEND_SANITIZE}" MATCHES "thread" AND (ARG_GENERATED OR ARG_UNINSTRUMENTED))
    set(tsan_shared ON)
  endif()
  if(tsan_shared)
    add_library(${name} SHARED ${ARG_SOURCES})
  else()
    add_library(${name} STATIC ${ARG_SOURCES})
  endif()
  if(tsan_shared OR ARG_GENERATED)
    set_target_properties(${name} PROPERTIES TOKEND_UNSANITIZED ON)
  endif()
  if(ARG_GENERATED)
    target_compile_options(${name} PRIVATE -w)
    target_include_directories(${name} SYSTEM PUBLIC "${CMAKE_CURRENT_BINARY_DIR}")
    set_target_properties(${name} PROPERTIES CXX_CLANG_TIDY "")
  else()
    target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${name} PRIVATE tokend_warnings)
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    set(dep_type "")
    if(TARGET ${dep})
      get_target_property(dep_type ${dep} TYPE)
    endif()
    if(tsan_shared AND dep_type STREQUAL "STATIC_LIBRARY" AND dep MATCHES "^tokend_")
      # Instrumented code must exist once, in the executable: the shared library
      # only compiles against it and leaves its symbols undefined.
      add_dependencies(${name} ${dep})
      target_link_libraries(${name} INTERFACE ${dep})
      foreach(kind INCLUDE_DIRECTORIES SYSTEM_INCLUDE_DIRECTORIES COMPILE_DEFINITIONS)
        set(value "$<TARGET_PROPERTY:${dep},INTERFACE_${kind}>")
        if(kind STREQUAL "INCLUDE_DIRECTORIES")
          target_include_directories(${name} PRIVATE "${value}")
        elseif(kind STREQUAL "SYSTEM_INCLUDE_DIRECTORIES")
          target_include_directories(${name} SYSTEM PRIVATE "${value}")
        else()
          target_compile_definitions(${name} PRIVATE "${value}")
        endif()
      endforeach()
    else()
      target_link_libraries(${name} PUBLIC ${dep})
    endif()
  endforeach()
endfunction()

# UNINSTRUMENTED, here and in tokend_test: for files that include generated protobuf
# code. Its classes have another layout under ThreadSanitizer than in tokend_proto.
function(tokend_executable name)
  cmake_parse_arguments(ARG "UNINSTRUMENTED" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_UNINSTRUMENTED AND "${TOKEND_SANITIZE}" MATCHES "thread")
    set_target_properties(${name} PROPERTIES TOKEND_UNSANITIZED ON)
  endif()
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} tokend_warnings)
endfunction()

# What every test gets: a time limit that sanitizers and emulation stretch, the
# sanitizers' settings, and 77 as the exit code of a test that skipped.
function(tokend_test_properties name timeout)
  if(TOKEND_SANITIZE OR CMAKE_CROSSCOMPILING_EMULATOR)
    math(EXPR timeout "${timeout} * 6")
  endif()
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${timeout}
    LABELS "${ARGN}"
    SKIP_RETURN_CODE 77
    WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
    ENVIRONMENT "TSAN_OPTIONS=ignore_noninstrumented_modules=1 halt_on_error=1 second_deadlock_stack=1;ASAN_OPTIONS=detect_stack_use_after_return=1;UBSAN_OPTIONS=print_stacktrace=1")
endfunction()

# A GoogleTest binary: tokend_test(name SOURCES ... DEPS ... LABELS unit [TIMEOUT seconds]).
# A failure fails it; without one, a skipped TEST shows it as skipped in CTest's
# list (CTest's own SKIP_REGULAR_EXPRESSION would hide the failure). Those that start
# threads have the label `threads` or `service`: ThreadSanitizer has nothing to see
# in the others, which its preset leaves out. `slow` ones run in the release build
# alone; `long` ones take minutes where a processor is emulated and are left out there.
function(tokend_test name)
  cmake_parse_arguments(ARG "UNINSTRUMENTED" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if("${TOKEND_SANITIZE}" MATCHES "thread" AND NOT "${ARG_LABELS}" MATCHES "threads|service")
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(uninstrumented "")
  if(ARG_UNINSTRUMENTED)
    set(uninstrumented UNINSTRUMENTED)
  endif()
  tokend_executable(${name} ${uninstrumented} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND sh "${PROJECT_SOURCE_DIR}/cmake/run_gtest.sh"
    ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}>)
  tokend_test_properties(${name} ${ARG_TIMEOUT} ${ARG_LABELS})
endfunction()

# A Python script as a test: exit code 0 passes, 77 skips.
# tokend_python_test(name SCRIPT file.py [ARGS ...] LABELS e2e [TIMEOUT seconds])
# It finds the programs in $TOKEND_BIN_DIR and runs them under $TOKEND_EMULATOR, if set.
function(tokend_python_test name)
  cmake_parse_arguments(ARG "" "SCRIPT;TIMEOUT" "ARGS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  get_filename_component(script "${ARG_SCRIPT}" ABSOLUTE)
  add_test(NAME ${name} COMMAND "${TOKEND_VENV}/bin/python" "${script}" ${ARG_ARGS})
  tokend_test_properties(${name} ${ARG_TIMEOUT} ${ARG_LABELS})
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
    "TOKEND_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "TOKEND_BUILD_DIR=${CMAKE_BINARY_DIR}"
    "TOKEND_PYTHON=${TOKEND_VENV}/bin/python" "TOKEND_EMULATOR=${emulator}"
    "PYTHONDONTWRITEBYTECODE=1" "PYTHONUNBUFFERED=1")
endfunction()

# A fuzz target with LLVMFuzzerTestOneInput: tokend_fuzzer(name SOURCES ... DEPS ... [CORPUS dir]).
# Preset fuzz builds it with libFuzzer for `./dev fuzz`. Every other build gives it
# a main that replays the corpus, and CTest runs that. CORPUS defaults to corpus/<name>.
if(TOKEND_BUILD_FUZZERS)
  add_custom_target(fuzzers)
endif()
function(tokend_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_CORPUS)
    set(ARG_CORPUS "corpus/${name}")
  endif()
  get_filename_component(corpus "${ARG_CORPUS}" ABSOLUTE)
  if(TOKEND_BUILD_FUZZERS)
    tokend_executable(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
    file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/fuzz/${name}.corpus" CONTENT "${corpus}\n")
  else()
    tokend_executable(${name}
      SOURCES ${ARG_SOURCES} "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc" DEPS ${ARG_DEPS})
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    add_test(NAME ${name}_corpus COMMAND ${name} "${corpus}")
    tokend_test_properties(${name}_corpus 120 unit)
  endif()
endfunction()
