#ifndef TOKEND_SERVICE_SIGNALS_H_
#define TOKEND_SERVICE_SIGNALS_H_

#include "absl/status/status.h"

namespace tokend::service {

// SIGTERM, SIGINT and SIGHUP as events, beside one of our own.
class Signals {
 public:
  enum class Event { kStop, kReload, kWake };

  // Keeps the signals from every thread that is started later. First thing in main.
  static void Block();

  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Until a signal or Wake.
  Event Wait();
  // Any thread.
  void Wake();

 private:
  const int signal_fd_;
  const int wake_fd_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_SIGNALS_H_
