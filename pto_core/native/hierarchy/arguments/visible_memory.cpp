#include "arguments/visible_memory.hpp"

namespace pto::hierarchy {

VisibleMemory::VisibleMemory(const std::optional<std::vector<AddressSpan>>& attached)
    : is_forked_(!attached) {
  at_start_.read();
  if (attached) at_start_.keep_only(*attached);
}

VisibleMemory::Answer VisibleMemory::of(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  SharedRanges& now = SharedRanges::of_process();
  if (version_ == now.version() && address >= last_begin_ && end <= last_end_)
    return Answer::kVisible;
  Sharing sharing = now.of(address, bytes);
  if (sharing == Sharing::kShared && !is_fresh_ && !now.is_own(address)) {
    is_fresh_ = true;
    now.forget();
    sharing = now.of(address, bytes);
  }
  if (sharing == Sharing::kPrivate) return Answer::kPrivate;
  if (sharing == Sharing::kUnmapped) return Answer::kUnmapped;
  if (is_same_as_at_start(address, end)) return Answer::kVisible;
  return is_forked_ ? Answer::kMappedLater : Answer::kNotAttached;
}

void VisibleMemory::begin_run() {
  is_fresh_ = false;
  if (!last_is_own_) last_begin_ = last_end_ = 0;
}

bool VisibleMemory::is_same_as_at_start(uint64_t address, uint64_t end) {
  SharedRanges& now = SharedRanges::of_process();
  while (true) {
    bool is_own = false;
    const AddressSpan span = now.common(at_start_, address, &is_own);
    if (span.end <= address) return false;
    if (end <= span.end) {
      version_ = now.version();
      last_begin_ = span.begin;
      last_end_ = span.end;
      last_is_own_ = is_own;
      return true;
    }
    address = span.end;
  }
}

}  // namespace pto::hierarchy
