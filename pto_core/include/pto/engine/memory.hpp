// Memory of the runtime: chunks from the platform, kept between runs and freed in destroy().
//
// A runtime does not clear its memory between runs. A later run writes only the memory that it
// uses, and touches a new page only if it needs more memory than all earlier runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "pto/abi/platform.h"

namespace pto::engine {

// Calls reserve() and release() of the platform and counts the reserved bytes. Any thread may use
// it.
class Memory {
 public:
  explicit Memory(const pto_platform* platform) : platform_(platform) {}

  void* reserve(size_t bytes) {
    void* memory = platform_->reserve(platform_->self, bytes);
    if (memory != nullptr) bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return memory;
  }

  void release(void* memory, size_t bytes) {
    if (memory == nullptr) return;
    platform_->release(platform_->self, memory, bytes);
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  // Replace `array` by a larger array that starts with the same `used` elements. If memory is
  // exhausted, change nothing and return false.
  template <class Element>
  bool enlarge(Element*& array, uint64_t used, uint64_t capacity, uint64_t larger_capacity) {
    static_assert(std::is_trivially_copyable_v<Element>, "elements are moved as bytes");
    void* larger = reserve(larger_capacity * sizeof(Element));
    if (larger == nullptr) return false;
    std::memcpy(larger, static_cast<const void*>(array), used * sizeof(Element));
    release(array, capacity * sizeof(Element));
    array = static_cast<Element*>(larger);
    return true;
  }

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  const pto_platform* platform_;
  std::atomic<size_t> bytes_{0};
};

// An array that grows by chunks and never moves its elements. Only one thread grows the array.
// Other threads may read an element after an operation that synchronises with its writer.
template <class Element, uint32_t kChunkBits>
class ChunkedArray {
 public:
  static constexpr uint32_t kDirectoryEntries = 16384;
  static constexpr uint64_t kCapacity = uint64_t{kDirectoryEntries} << kChunkBits;

  bool create(Memory& memory) {
    memory_ = &memory;
    directory_ = static_cast<Element**>(memory.reserve(kDirectoryEntries * sizeof(Element*)));
    return directory_ != nullptr;
  }

  void destroy() {
    if (directory_ == nullptr) return;
    for (uint32_t chunk = 0; chunk < chunks_; ++chunk) {
      memory_->release(directory_[chunk], kChunkBytes);
    }
    memory_->release(directory_, kDirectoryEntries * sizeof(Element*));
  }

  // Make element `index` usable. All elements before it must be usable already. Return false if
  // memory is exhausted.
  bool grow_to(uint64_t index) { return (index >> kChunkBits) < chunks_ || add_chunk(); }

  Element& operator[](uint64_t index) const {
    return directory_[index >> kChunkBits][index & (kChunkElements - 1)];
  }

 private:
  static constexpr uint64_t kChunkElements = uint64_t{1} << kChunkBits;
  static constexpr size_t kChunkBytes = sizeof(Element) << kChunkBits;

  bool add_chunk() {
    if (chunks_ == kDirectoryEntries) return false;
    void* chunk = memory_->reserve(kChunkBytes);
    if (chunk == nullptr) return false;
    directory_[chunks_++] = static_cast<Element*>(chunk);
    return true;
  }

  Memory* memory_ = nullptr;
  Element** directory_ = nullptr;
  uint32_t chunks_ = 0;
};

// Storage for records of different sizes. Each record is contiguous and aligned to 8 bytes. Only
// one thread may use it.
class Arena {
 public:
  bool create(Memory& memory) { return chunks_.create(memory); }
  void destroy() { chunks_.destroy(); }

  void restart() {
    next_ = nullptr;
    end_ = nullptr;
    used_ = 0;
  }

  // Allocate `bytes`, a multiple of 8 and at most kChunkBytes. Return NULL if memory is exhausted.
  void* allocate(size_t bytes) {
    if (static_cast<size_t>(end_ - next_) < bytes && !next_chunk()) return nullptr;
    char* memory = next_;
    next_ += bytes;
    return memory;
  }

 private:
  static constexpr uint32_t kChunkBits = 18;
  static constexpr size_t kChunkBytes = size_t{1} << kChunkBits;

  bool next_chunk() {
    const uint64_t first = used_ << kChunkBits;
    if (!chunks_.grow_to(first)) return false;
    ++used_;
    next_ = &chunks_[first];
    end_ = next_ + kChunkBytes;
    return true;
  }

  ChunkedArray<char, kChunkBits> chunks_;
  char* next_ = nullptr;
  char* end_ = nullptr;
  uint64_t used_ = 0;
};

}  // namespace pto::engine
