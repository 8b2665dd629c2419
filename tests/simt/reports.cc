// How a finding is worded. What is said from a fiber that is then abandoned must not
// own memory.
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "core/base/check.h"
#include "tests/simt/machine.h"

namespace tokend::simt {

SiteText ToString(Site site) {
  SiteText result;
  const char* slash = std::strrchr(site.file, '/');
  std::snprintf(result.text, sizeof(result.text), "%s:%d", slash != nullptr ? slash + 1 : site.file,
                site.line);
  return result;
}

void Machine::NoteV(Site site, const char* format, va_list arguments) {
  char what[1024];
  std::vsnprintf(what, sizeof(what), format, arguments);
  char text[1400];
  std::snprintf(text, sizeof(text), "kernel %s, block (%u, %u, %u), thread %d at %s: %s",
                call_->name, blockIdx.x, blockIdx.y, blockIdx.z, current_, ToString(site).text,
                what);
  findings.push_back(text);
  std::fprintf(stderr, "simt: %s\n", text);
  aborted_ = true;
}

void Machine::Note(Site site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  NoteV(site, format, arguments);
  va_end(arguments);
}

void Machine::Fail(Site site, const char* format, ...) {
  TOKEND_CHECK(running());
  va_list arguments;
  va_start(arguments, format);
  NoteV(site, format, arguments);
  va_end(arguments);
  Fiber::Switch(current().fiber, main_);
  TOKEND_CHECK(false);
  __builtin_unreachable();
}

// "threads 0-31 at matmul.cu:12".
void Machine::AppendWaiting(ThreadState state, std::string& text) const {
  bool any = false;
  for (int i = 0; i < thread_count_; ++i) {
    const Thread& first = threads_[i];
    if (first.state != state) continue;
    int last = i;
    while (last + 1 < thread_count_) {
      const Thread& next = threads_[last + 1];
      if (next.state != state) break;
      if (state != ThreadState::kExited && !(next.site == first.site)) break;
      ++last;
    }
    char part[200];
    std::snprintf(part, sizeof(part), "%s%d-%d%s%s", any ? ", " : "threads ", i, last,
                  state == ThreadState::kExited ? "" : " at ",
                  state == ThreadState::kExited ? "" : ToString(first.site).text);
    text += part;
    any = true;
    i = last;
  }
  if (!any) text += "none";
}

void Machine::Deadlock() {
  waiting_ = "at the block's barrier: ";
  AppendWaiting(ThreadState::kAtBlockBarrier, waiting_);
  waiting_ += "; at warp operations: ";
  AppendWaiting(ThreadState::kAtWarpOp, waiting_);
  waiting_ += "; exited: ";
  AppendWaiting(ThreadState::kExited, waiting_);
  Fail(current().site, "deadlock; %s", waiting_.c_str());
}

}  // namespace tokend::simt
