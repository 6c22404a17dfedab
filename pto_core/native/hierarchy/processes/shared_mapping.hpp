// Memory that a process shares with those that it starts: one unnamed file, mapped once.
//
// Sparse: it takes memory page by page as it is written, and gives it back by zero(). It has no
// name that could outlive its processes. Children that are forked have it at the same address; one
// that is started anew attaches it there, or fails. The mapping stays until its owner lets go of
// it; a forked process never unmaps or zeroes what it inherited.
//
// Any thread may read; one at a time changes.
#pragma once

#include <cstdint>

namespace pto::hierarchy {

class SharedMapping {
 public:
  // Rounded up to whole pages. It lies where other programs put nothing, so that a process started
  // anew, at whatever depth, finds the place free. Throws std::system_error.
  explicit SharedMapping(uint64_t bytes);
  // Maps `descriptor`, which stays the caller's, exactly at `address`. Throws std::system_error:
  // EEXIST when something else is there.
  SharedMapping(int descriptor, uint64_t bytes, uint64_t address);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  uint64_t bytes() const { return bytes_; }
  // -1 when it was attached.
  int descriptor() const { return descriptor_; }
  bool is_owner() const;

  // Bytes that take memory, whoever wrote them.
  uint64_t resident_bytes() const;
  // Makes a range zero, and gives the memory of whole pages back. The owner's only.
  void zero(uint64_t offset, uint64_t bytes);

 private:
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
  int owner_ = 0;  // process that made it
};

}  // namespace pto::hierarchy
