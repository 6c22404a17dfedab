// A connection in the memory of this process, with both of its ends, and frames with data that
// identifies them.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "pto/abi/endpoint.h"

extern "C" const pto_transport_api* pto_transport_entry(const char* name);

inline const pto_transport_api& shm() {
  return *pto_transport_entry("shm");
}

class Connection {
 public:
  Connection(uint32_t queue_frames, uint32_t queue_bytes) {
    values_ = {nullptr, 0, nullptr, nullptr, queue_frames, queue_bytes};
    values_.memory_bytes = shm().memory_needed(&values_);
    values_.memory = mmap(nullptr, values_.memory_bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(values_.memory != MAP_FAILED);
    values_.parent_bell = &bells_[0];
    values_.child_bell = &bells_[1];
    open();
  }
  ~Connection() {
    close();
    munmap(values_.memory, values_.memory_bytes);
  }
  Connection(const Connection&) = delete;

  // Reopen the connection, as the core does for a restarted child.
  void reopen() {
    close();
    std::memset(values_.memory, 0, values_.memory_bytes);
    open();
  }

  pto_parent_end* parent() const { return parent_; }
  pto_child_end* child() const { return child_; }
  const pto_connection& values() const { return values_; }
  uint8_t* memory() const { return static_cast<uint8_t*>(values_.memory); }
  pto_bell& parent_bell() { return bells_[0]; }
  pto_bell& child_bell() { return bells_[1]; }

  void close_parent() {
    if (parent_) shm().close_parent(parent_);
    parent_ = nullptr;
  }
  void close_child() {
    if (child_) shm().close_child(child_);
    child_ = nullptr;
  }

 private:
  void open() {
    parent_ = shm().open_parent(&values_);
    child_ = shm().open_child(&values_);
    CHECK(parent_ && child_);
  }
  void close() {
    close_parent();
    close_child();
  }

  pto_connection values_{};
  pto_bell bells_[2] = {};
  pto_parent_end* parent_ = nullptr;
  pto_child_end* child_ = nullptr;
};

// Return `bytes` bytes that encode `number`, so that a test can detect lost or mixed data.
inline std::vector<uint8_t> pattern(uint64_t number, uint32_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (uint32_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(number * 31 + i * 7 + 1);
  return data;
}

inline pto_frame task(uint64_t number, uint32_t bytes = 0) {
  pto_frame frame{};
  frame.number = number;
  frame.bytes = bytes;
  frame.required_child = -1;
  frame.kind = PTO_FRAME_TASK;
  return frame;
}

inline int32_t submit(Connection& to, const pto_frame& frame) {
  const std::vector<uint8_t> data = pattern(frame.number, frame.bytes);
  const pto_frame_view view{&frame, data.data()};
  return shm().submit(to.parent(), &view, 1);
}

inline bool has_pattern(const void* data, uint64_t number, uint32_t bytes) {
  const std::vector<uint8_t> expected = pattern(number, bytes);
  return bytes == 0 || std::memcmp(data, expected.data(), bytes) == 0;
}

inline pto_answer completed(uint64_t number, uint16_t outcome = PTO_OUTCOME_SUCCEEDED) {
  return {number, nullptr, 0, PTO_ANSWER_COMPLETED, outcome};
}

inline int32_t give(Connection& to, const pto_answer& answer) {
  return shm().answer(to.child(), &answer);
}
