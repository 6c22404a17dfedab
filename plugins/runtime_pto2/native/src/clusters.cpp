#include "clusters.hpp"

namespace pto::ring_buffer {

void Clusters::begin(uint32_t blocks) {
  blocks_ = blocks;
  allocated_ = 0;
  peak_ = 0;
  next_group_ = 0;
  free_.store((uint32_t{1} << blocks) - 1, std::memory_order_relaxed);
}

int32_t Clusters::allocate(uint32_t depth) {
  const uint32_t free = free_.load(std::memory_order_acquire);
  if (free == 0) return kNone;
  const int32_t cluster = __builtin_ctz(free);
  // Only this thread clears bits, so the cluster is still free.
  free_.fetch_and(~(uint32_t{1} << cluster), std::memory_order_relaxed);
  allocated_ |= uint32_t{1} << cluster;
  Slot& slot = slots_[cluster];
  slot.holds.store(1, std::memory_order_relaxed);
  slot.depth = depth;
  slot.group = next_group_++;
  const uint32_t now = taken();
  if (now > peak_) peak_ = now;
  return cluster;
}

void Clusters::free(int32_t cluster) {
  allocated_ &= ~(uint32_t{1} << cluster);
  completed(cluster);
}

void Clusters::free_from(uint32_t depth) {
  for (uint32_t left = allocated_; left != 0; left &= left - 1) {
    const int32_t cluster = __builtin_ctz(left);
    if (slots_[cluster].depth >= depth) free(cluster);
  }
}

// Both threads use seq_cst. So either the orchestrator sees the bit when it checks again, or this
// thread sees that the orchestrator waits.
void Clusters::put_back(int32_t cluster) {
  free_.fetch_or(uint32_t{1} << cluster, std::memory_order_seq_cst);
  if (rings_.waiting.load(std::memory_order_seq_cst) == 0) return;
  rings_.wake_orchestrator(context_.platform);
}

uint32_t Clusters::outermost_depth() const {
  uint32_t outermost = allocated_ == 0 ? 0 : ~uint32_t{0};
  for (uint32_t left = allocated_; left != 0; left &= left - 1) {
    const uint32_t depth = slots_[__builtin_ctz(left)].depth;
    if (depth < outermost) outermost = depth;
  }
  return outermost;
}

uint32_t Clusters::taken() const {
  return blocks_ - static_cast<uint32_t>(__builtin_popcount(free_.load(std::memory_order_acquire)));
}

}  // namespace pto::ring_buffer
