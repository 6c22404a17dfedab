// Cache maintenance of an AICPU thread. Here it does nothing: the runtime keeps the memory
// coherent.
#ifndef PTO_CACHE_MAINTENANCE_H
#define PTO_CACHE_MAINTENANCE_H

#include <cstddef>

namespace aicpu_cache_maintenance {

inline void invalidate_range_impl(const void*, size_t) {}

}  // namespace aicpu_cache_maintenance

#endif
