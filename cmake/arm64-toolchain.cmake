# Cross build for arm64 on an amd64 Debian 12 with its :arm64 -dev packages
# installed beside the amd64 ones. Two libraries cannot be (their civetweb would
# remove the amd64 one): ./dev unpacks them into build/arm64-sysroot, and the CUDA runtime
# of the target into build/arm64-cuda.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(TOKEND_ARM64_SYSROOT
  "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-sysroot" ABSOLUTE)
get_filename_component(TOKEND_ARM64_CUDA "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-cuda" ABSOLUTE)
set(CMAKE_PREFIX_PATH "${TOKEND_ARM64_SYSROOT}/usr")
# The build tree finds them by RPATH, not RUNPATH: the libraries need each other.
set(CMAKE_BUILD_RPATH "${TOKEND_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-Wl,--disable-new-dtags -Wl,-rpath-link,${CMAKE_BUILD_RPATH}")

# pkg-config must not answer for amd64.
set(ENV{PKG_CONFIG_LIBDIR} "/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig")

# Without -L: with it, threads hang in this qemu. The loader and libraries of
# the :arm64 packages are where the binaries look for them.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-cpu;max)
