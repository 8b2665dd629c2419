#include "tests/simt/source_line.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tokend::simt {

Site SourceLine(const void* pc) {
  static char text[512];
  Dl_info info;
  if (dladdr(pc, &info) == 0) return {"?", 0};
  const size_t offset =
      static_cast<size_t>(static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase));
  std::snprintf(text, sizeof(text), "addr2line -e '%s' %#zx 2>/dev/null", info.dli_fname,
                offset - 1);
  FILE* pipe = popen(text, "r");
  const bool read = pipe != nullptr && std::fgets(text, sizeof(text), pipe) != nullptr;
  if (pipe != nullptr) pclose(pipe);
  char* colon = read ? std::strrchr(text, ':') : nullptr;
  if (colon == nullptr || text[0] == '?') {
    std::snprintf(text, sizeof(text), "address %#zx", offset);
    return {text, 0};
  }
  *colon = '\0';
  return {text, std::atoi(colon + 1)};
}

}  // namespace tokend::simt
