#include "service/cuda_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cuda_kernels/backend/cuda_abi.h"
#include "service/build_info.h"
#include "service/errors.h"

namespace tokend::service {
namespace {

constexpr char kName[] = "libtokend_cuda.so";

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

absl::StatusOr<const cuda::CudaLibrary*> Load(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string why = dlerror();
    // By name alone: the loader found none.
    if (path == kName && absl::StartsWith(why, kName) &&
        absl::StrContains(why, "cannot open shared object file")) {
      return absl::NotFoundError(why);
    }
    return absl::FailedPreconditionError(why);
  }
  const auto open =
      reinterpret_cast<cuda::CudaLibraryFunction>(dlsym(handle, cuda::kCudaLibraryFunction));
  if (open == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no library of this program"));
  }
  const cuda::CudaLibrary* library = open();
  // Nothing else of it means anything before this.
  if (absl::string_view(library->abi) != cuda::kCudaAbi) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is of another build (",
                                                      Echo(library->abi), ", this is ",
                                                      cuda::kCudaAbi, "): install both together"));
  }
  return library;
}

}  // namespace

std::vector<std::string> CudaLibraryPaths() {
  std::vector<std::string> out;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path prefix = program.parent_path().parent_path();
    out.push_back((prefix / "lib" / kName).string());
    if (absl::string_view(kInstallLibDir) != "lib") {
      out.push_back((prefix / kInstallLibDir / kName).string());
    }
  }
  out.push_back(kName);
  return out;
}

absl::StatusOr<const cuda::CudaLibrary*> LoadCudaLibrary(absl::Span<const std::string> paths) {
  for (const std::string& path : paths) {
    if (absl::StrContains(path, "/") && !IsThere(path)) continue;
    auto library = Load(path);
    if (library.status().code() != absl::StatusCode::kNotFound) return library;
  }
  return absl::NotFoundError(
      absl::StrCat(kName, " is not installed (not at ", absl::StrJoin(paths, ", "), ")"));
}

}  // namespace tokend::service
