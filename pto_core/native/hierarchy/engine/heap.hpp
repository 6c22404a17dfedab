// The heap rings. Each submit that allocates memory gets one slab; slabs are freed in order.
//
// pto/engine/heap_ring.hpp computes the position of a slab. Invariant: `slabs_` contains the slabs
// that are not free at the indices from `oldest_` to before `next_`, ascending by position.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/interface.hpp"
#include "engine/slots.hpp"
#include "pto/engine/heap_ring.hpp"

namespace pto::hierarchy {

struct Slab {
  uint64_t begin;  // virtual offset
  uint64_t end;    // virtual offset
  uint32_t slot;   // slot of its task
  bool is_released;
};

class Heap {
 public:
  Heap(uint32_t number, const RingConfiguration& configuration)
      : number_(number), configuration_(configuration), ring_(configuration.size), slabs_(64) {}

  // Start again with an empty ring. Every slab must be free.
  void restart() {
    ring_.restart(size());
    tail_ = 0;
  }

  uint64_t size() const { return configuration_.size; }
  uint64_t used() const { return ring_.used(tail_); }
  uint64_t head() const { return ring_.head(); }
  uint64_t held() const { return held_; }
  uint32_t number() const { return number_; }
  uint32_t slabs() const { return next_ - oldest_; }

  // Throw if `bytes` bytes do not fit into the empty ring.
  void check_size(uint64_t bytes) const {
    if (ring_.can_ever_fit(bytes)) return;
    throw Refusal(Refusal::Kind::kCapacity,
                  "a submit needs " + std::to_string(bytes) + " bytes of heap ring " +
                      std::to_string(number_) + ", which has " + std::to_string(size()) +
                      "; set heap_ring_size to at least " + std::to_string(bytes));
  }

  // Return the address of the slab that commit() would create, or none if there is no free space
  // now.
  std::optional<uint64_t> try_reserve(uint64_t bytes) {
    if (next_ - oldest_ == slabs_.size()) grow();
    const engine::HeapRing::Range range = ring_.try_reserve(bytes, tail_);
    if (!range.fits) return std::nullopt;
    at(next_) = {range.begin, range.end, kNoSlot, false};
    return configuration_.address + range.position;
  }

  // Create the slab for the task.
  uint32_t commit(uint32_t slot) {
    Slab& slab = at(next_);
    slab.slot = slot;
    held_ += slab.end - slab.begin;
    return next_++;
  }

  const Slab& slab(uint32_t index) const { return slabs_[index & (slabs_.size() - 1)]; }
  // Return the oldest slab, which must exist.
  const Slab& oldest() const { return slab(oldest_); }

  // Free the slab as soon as all older slabs are free. Return whether the tail moved.
  bool release(uint32_t index) {
    at(index).is_released = true;
    const uint32_t before = oldest_;
    while (oldest_ != next_ && at(oldest_).is_released) {
      held_ -= at(oldest_).end - at(oldest_).begin;
      tail_ = at(oldest_).end;
      ++oldest_;
    }
    return oldest_ != before;
  }

  // Return whether any of these bytes belong to the ring.
  bool contains(uint64_t begin, uint64_t end) const {
    return begin - configuration_.address < size() ||
           (begin < configuration_.address && configuration_.address < end);
  }

  // Return the slot of the live task whose slab contains all of these bytes, or kNoSlot.
  uint32_t owner(uint64_t begin, uint64_t end) const {
    if (begin < configuration_.address || oldest_ == next_) return kNoSlot;
    const uint64_t first = oldest().begin;
    uint64_t place = first - first % size() + (begin - configuration_.address);
    if (place < first) place += size();
    uint32_t low = 0;
    uint32_t high = next_ - oldest_;  // the slab that is searched has a lower index
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (slab(oldest_ + middle).begin <= place ? low : high) = middle;
    }
    const Slab& found = slab(oldest_ + low);
    const bool holds = found.begin <= place && place + (end - begin) <= found.end;
    return holds && !found.is_released ? found.slot : kNoSlot;
  }

  // Call visit(slab) for each slab, oldest first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (uint32_t index = oldest_; index != next_; ++index) visit(slab(index));
  }

 private:
  Slab& at(uint32_t index) { return slabs_[index & (slabs_.size() - 1)]; }

  void grow() {
    std::vector<Slab> larger(slabs_.size() * 2);
    for (uint32_t index = oldest_; index != next_; ++index) {
      larger[index & (larger.size() - 1)] = at(index);
    }
    slabs_.swap(larger);
  }

  uint32_t number_;
  RingConfiguration configuration_;
  engine::HeapRing ring_;
  std::vector<Slab> slabs_;  // the number of elements is a power of 2
  uint32_t oldest_ = 0;
  uint32_t next_ = 0;
  uint64_t tail_ = 0;
  uint64_t held_ = 0;
};

}  // namespace pto::hierarchy
