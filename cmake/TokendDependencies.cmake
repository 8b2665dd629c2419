# Everything here comes from Debian 12's packages; `./dev` installs them.
find_package(Threads REQUIRED)
# Module mode, and before gRPC: gRPC's own config would otherwise load
# protobuf's, which lacks protobuf_generate().
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_program(TOKEND_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
if(TOKEND_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
