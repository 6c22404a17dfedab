// Tables of the engine: elements with an index, in one mapping that grows without copying.
//
// Forked children do not inherit the memory, so a child that is started during a large run does not
// keep a copy of it. A child must not access the memory. A reference to an element is valid until
// the table grows.
//
// Only one thread may use it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace pto::hierarchy {

// A growing array of elements, which start as zero.
template <class T>
class MappedArray {
  static_assert(std::is_trivially_copyable_v<T>, "elements are moved as pages");

 public:
  explicit MappedArray(uint64_t capacity) : capacity_(capacity) {
    void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes(), MADV_DONTFORK);
    elements_ = static_cast<T*>(memory);
  }
  ~MappedArray() { munmap(elements_, bytes()); }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;

  T& operator[](uint64_t index) { return elements_[index]; }
  const T& operator[](uint64_t index) const { return elements_[index]; }
  uint64_t capacity() const { return capacity_; }

  // Ensure that there is space for `count` elements. If memory is exhausted, throw std::bad_alloc
  // and change nothing.
  void reserve(uint64_t count) {
    if (count <= capacity_) return;
    uint64_t larger = capacity_;
    while (larger < count) larger *= 2;
    void* memory = mremap(elements_, bytes(), larger * sizeof(T), MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    elements_ = static_cast<T*>(memory);
    capacity_ = larger;
  }

 private:
  size_t bytes() const { return capacity_ * sizeof(T); }

  T* elements_;
  uint64_t capacity_;
};

// A pool of elements that are identified by an index from 1; index 0 means none. `kLink` links the
// free elements.
template <class T, uint32_t T::* kLink>
class Pool {
 public:
  static constexpr uint64_t kFirstCapacity = 4096;

  Pool() : elements_(kFirstCapacity) {}

  T& operator[](uint32_t index) { return elements_[index]; }
  const T& operator[](uint32_t index) const { return elements_[index]; }

  // Reserve memory, so that the next `count` calls of take() do not grow the table.
  void reserve(uint64_t count) {
    const uint64_t unused = end_ + count;
    if (unused > elements_.capacity()) elements_.reserve(unused);
  }

  // Take an element. Its content is that of its last use, or zero. reserve() must have been called
  // before.
  uint32_t take() {
    if (free_ == 0) return end_++;
    const uint32_t index = free_;
    free_ = elements_[index].*kLink;
    return index;
  }

  // Prefetch the element that take() will return.
  void prefetch_next() const {
    const char* next = reinterpret_cast<const char*>(&elements_[free_ == 0 ? end_ : free_]);
    for (size_t line = 0; line < sizeof(T); line += 64) __builtin_prefetch(next + line, 1);
  }

  void give_back(uint32_t index) {
    elements_[index].*kLink = free_;
    free_ = index;
  }

  // The elements that have been taken so far have the indices 1 to end() - 1.
  uint32_t end() const { return end_; }

 private:
  MappedArray<T> elements_;
  uint32_t end_ = 1;
  uint32_t free_ = 0;
};

}  // namespace pto::hierarchy
