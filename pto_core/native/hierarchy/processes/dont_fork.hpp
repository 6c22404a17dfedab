// An allocator for tables that only the parent needs: its blocks are mappings of their own that
// children do not get, so a child started in the middle of a large run neither copies nor keeps
// them. For containers that grow in large blocks. Touching such memory in a forked child is a
// segmentation fault.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace pto::hierarchy {

template <class T>
struct DontForkAllocator {
  using value_type = T;

  DontForkAllocator() = default;
  template <class U>
  explicit DontForkAllocator(const DontForkAllocator<U>&) {}

  T* allocate(size_t count) {
    void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, count * sizeof(T), MADV_DONTFORK);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) { munmap(memory, count * sizeof(T)); }

  template <class U>
  bool operator==(const DontForkAllocator<U>&) const {
    return true;
  }
};

}  // namespace pto::hierarchy
