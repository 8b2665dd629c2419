#include "core/gguf/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/gguf/parser.h"

namespace tokend::gguf {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<File>> File::Open(const std::string& path) {
  return Map(path, /*with_tensors=*/true);
}

absl::StatusOr<std::unique_ptr<File>> File::OpenMetadata(const std::string& path) {
  return Map(path, /*with_tensors=*/false);
}

absl::StatusOr<std::unique_ptr<File>> File::Map(const std::string& path, bool with_tensors) {
  // Non-blocking, or opening a named pipe would wait for a writer.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return CannotOpen(path, "open", errno);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return CannotOpen(path, "read", errno);
  if (!S_ISREG(info.st_mode)) return Damaged(path, "not a regular file");
  if (info.st_size == 0) return Damaged(path, "the file is empty");
  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return CannotOpen(path, "map", errno);

  std::unique_ptr<File> file(new File);
  file->path_ = path;
  file->mapped_ = true;
  file->bytes_ = absl::MakeConstSpan(static_cast<const std::byte*>(address), size);
  const absl::Status status = Parser(file.get()).Run(with_tensors);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }
  return file;
}

absl::StatusOr<std::unique_ptr<File>> File::Parse(absl::Span<const std::byte> bytes) {
  std::unique_ptr<File> file(new File);
  file->bytes_ = bytes;
  TOKEND_RETURN_IF_ERROR(Parser(file.get()).Run(/*with_tensors=*/true));
  return file;
}

File::~File() {
  if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

const MetadataEntry* File::FindMetadata(absl::string_view key) const {
  const auto it = metadata_index_.find(key);
  return it == metadata_index_.end() ? nullptr : &metadata_[it->second];
}

const TensorInfo* File::FindTensor(absl::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<const TensorInfo*> File::GetTensor(absl::string_view name) const {
  const TensorInfo* tensor = FindTensor(name);
  if (tensor == nullptr) {
    return Damaged(absl::StrCat("tensor ", Quoted(name)), "missing from the file");
  }
  return tensor;
}

void File::ReleaseMemory() const {
  if (mapped_) ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace tokend::gguf
