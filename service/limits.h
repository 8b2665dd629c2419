// Every bound on what a caller may send, and why it is there.
#ifndef TOKEND_SERVICE_LIMITS_H_
#define TOKEND_SERVICE_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace tokend::service {

// Input. Beyond any context length in use; bounds tokenising time to some 100 ms.
inline constexpr size_t kMaxTextBytes = 1 << 20;
inline constexpr int kMaxInputTokens = 1 << 20;
inline constexpr int kMaxChatMessages = 1024;
// A message of kMaxInputTokens ids: at most 10 bytes each (a negative one, which
// is to be refused with its name), and room for the rest.
inline constexpr int kMaxRequestBytes = 12 << 20;

// Sampling. Temperatures above 10 are uniform in practice; penalties as other
// servers have them.
inline constexpr float kMaxTemperature = 10;
inline constexpr float kMaxRepetitionPenalty = 10;
inline constexpr float kMaxPenalty = 2;
inline constexpr float kMaxLogitBias = 100;
inline constexpr int kMaxLogitBiases = 1024;

// Stopping. Each string is looked for after each token.
inline constexpr int kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr int kMaxStopTokens = 16;
// Each costs a response of some 12 bytes a token and a partial sort.
inline constexpr int kMaxTopLogprobs = 20;

// Names. A session id is a file name and a label somewhere one day.
inline constexpr size_t kMaxSessionIdBytes = 63;
inline constexpr size_t kMaxRequestIdBytes = 64;

// Pages of lists, as documented in the proto.
inline constexpr int kMaxListPage = 1000;
inline constexpr int kDefaultListPage = 100;
inline constexpr int kMaxTokensPage = 65536;
inline constexpr int kDefaultTokensPage = 4096;

// Shorter ones would delete a session between two turns of a fast caller; longer
// ones overflow somebody's clock.
inline constexpr absl::Duration kMinIdleTtl = absl::Seconds(1);
inline constexpr absl::Duration kMaxIdleTtl = absl::Hours(24 * 3653);

// A stream whose pieces wait for its reader pauses its turn at so many waiting
// tokens or bytes: some seconds of output, little memory.
inline constexpr int kMaxPendingTokens = 256;
inline constexpr size_t kMaxPendingBytes = 64 << 10;

// Errors: clients drop trailers over 8 KiB, of which the status takes a share.
inline constexpr int kMaxViolations = 8;
inline constexpr size_t kMaxEchoBytes = 64;
inline constexpr size_t kMaxDetailsBytes = 4 << 10;
inline constexpr size_t kMaxMessageBytes = 512;

// Calls in flight on one connection, and watchers of the health service.
inline constexpr int kMaxConcurrentStreams = 256;
inline constexpr int kMaxHealthWatchers = 256;

// sockaddr_un::sun_path holds 108 with its end mark.
inline constexpr size_t kMaxUnixPathBytes = 107;

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_LIMITS_H_
