#include "driver/regions.hpp"

#include <algorithm>
#include <cstring>

namespace pto::hierarchy {
namespace {

void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

}  // namespace

void SavedRegions::reserve(int64_t task, std::vector<SavedRange> ranges, uint64_t bytes) {
  if (bytes == 0) return;
  reserved_bytes_ += bytes;
  kept_[task] = {std::move(ranges), bytes, nullptr};
}

void SavedRegions::save(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end() || found->second.copy) return;
  Kept& kept = found->second;
  kept.copy = std::make_unique_for_overwrite<std::byte[]>(kept.bytes);
  std::byte* to = kept.copy.get();
  for (const SavedRange& range : kept.ranges) {
    std::memcpy(to, pointer(range.address), range.bytes);
    to += range.bytes;
  }
  saved_bytes_ += kept.bytes;
  most_saved_bytes_ = std::max(most_saved_bytes_, saved_bytes_);
}

void SavedRegions::restore(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end() || !found->second.copy) return;
  const std::byte* from = found->second.copy.get();
  for (const SavedRange& range : found->second.ranges) {
    std::memcpy(pointer(range.address), from, range.bytes);
    from += range.bytes;
  }
}

void SavedRegions::drop(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end() || !found->second.copy) return;
  saved_bytes_ -= found->second.bytes;
  found->second.copy.reset();
}

void SavedRegions::end(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end()) return;
  drop(task);
  reserved_bytes_ -= found->second.bytes;
  kept_.erase(found);
}

}  // namespace pto::hierarchy
