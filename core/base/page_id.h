#ifndef TOKEND_CORE_BASE_PAGE_ID_H_
#define TOKEND_CORE_BASE_PAGE_ID_H_

#include <cstdint>

namespace tokend::base {

// A page of the KV arena: K and V of `page_tokens` consecutive positions of one
// layer. Its address is the arena's start plus the id times the page's bytes.
enum class PageId : int32_t { kNone = -1 };

}  // namespace tokend::base

#endif  // TOKEND_CORE_BASE_PAGE_ID_H_
