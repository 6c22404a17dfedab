#include "device/pool.hpp"

#include <sched.h>

namespace pto::a2a3 {

class Pool::Lock {
 public:
  explicit Lock(std::atomic<bool>& locked) : locked_(locked) {
    while (locked_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& locked_;
};

void Pool::open(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  begin_ = (address + kAlignment - 1) / kAlignment * kAlignment;
  end_ = end / kAlignment * kAlignment;
  if (end_ < begin_) end_ = begin_;
}

pto_status Pool::allocate(uint64_t bytes, Owner owner, uint64_t* address) {
  const Lock lock(locked_);
  if (bytes > end_ - begin_) return PTO_ERROR_MEMORY;
  const uint64_t needed =
      bytes == 0 ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  uint64_t start = begin_;
  for (uint32_t i = 0; i <= blocks_.count(); ++i) {
    const uint64_t limit = i < blocks_.count() ? blocks_[i].address : end_;
    if (limit - start >= needed) {
      if (!blocks_.insert(i, {start, needed, bytes, owner})) return PTO_ERROR_MEMORY;
      used_ += needed;
      if (used_ > peak_) peak_ = used_;
      *address = start;
      return PTO_OK;
    }
    if (i < blocks_.count()) start = blocks_[i].address + blocks_[i].bytes;
  }
  return PTO_ERROR_MEMORY;
}

uint32_t Pool::find_first(uint64_t address) const {
  uint32_t first = 0;
  for (uint32_t rest = blocks_.count(); rest > 0;) {
    const uint32_t half = rest / 2;
    if (blocks_[first + half].address < address) {
      first += half + 1;
      rest -= half + 1;
    } else {
      rest = half;
    }
  }
  return first;
}

pto_status Pool::free(uint64_t address) {
  const Lock lock(locked_);
  const uint32_t first = find_first(address);
  if (first == blocks_.count() || blocks_[first].address != address) return PTO_ERROR_ADDRESS;
  remove(first);
  return PTO_OK;
}

bool Pool::find(uint64_t address, uint64_t* begin, uint64_t* end) {
  const Lock lock(locked_);
  const uint32_t next = find_first(address + 1);
  if (next == 0 || address - blocks_[next - 1].address >= blocks_[next - 1].asked) return false;
  *begin = blocks_[next - 1].address;
  *end = *begin + blocks_[next - 1].asked;
  return true;
}

void Pool::free_all(Owner owner) {
  const Lock lock(locked_);
  for (uint32_t i = blocks_.count(); i > 0; --i) {
    if (blocks_[i - 1].owner == owner) remove(i - 1);
  }
}

void Pool::remove(uint32_t index) {
  used_ -= blocks_[index].bytes;
  blocks_.remove(index);
}

}  // namespace pto::a2a3
