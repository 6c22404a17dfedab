// A History that allocates its memory with the C library.
#pragma once

#include <cstdlib>

#include "history.hpp"

namespace pto::ring_buffer {

class HistoryFixture {
 public:
  HistoryFixture() : memory_(platform()) {
    history_.create(memory_);
    history_.begin();
  }
  ~HistoryFixture() { history_.destroy(); }

  void reserve(uint32_t ring, uint64_t bytes) { history_.reserve(ring, bytes); }
  void release(uint32_t ring) { history_.release(ring); }
  const History& get() const { return history_; }
  operator const History&() const { return history_; }

 private:
  static const pto_platform* platform() {
    static pto_platform table = [] {
      pto_platform memory_only{};
      memory_only.reserve = [](void*, size_t bytes) { return std::calloc(1, bytes); };
      memory_only.release = [](void*, void* memory, size_t) { std::free(memory); };
      return memory_only;
    }();
    return &table;
  }

  engine::Memory memory_;
  History history_;
};

}  // namespace pto::ring_buffer
