// AddressSanitizer's annotations, or nothing. Internal.
#ifndef TOKEND_TESTS_SIMT_SANITIZER_H_
#define TOKEND_TESTS_SIMT_SANITIZER_H_

#if defined(__SANITIZE_ADDRESS__)
#define TOKEND_SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TOKEND_SIMT_ASAN 1
#endif
#endif

#ifdef TOKEND_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

#endif  // TOKEND_TESTS_SIMT_SANITIZER_H_
