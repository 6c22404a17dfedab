// The device's log: a ring of messages that the host reads. Any AICPU thread may write.
#pragma once

#include <atomic>
#include <cstring>

#include "abi/launch.h"
#include "device/access.hpp"
#include "device/error.hpp"
#include "pto/engine/text.hpp"

namespace pto::a2a3 {

class Log {
 public:
  void open(uint64_t address, int32_t level) {
    ring_ = reinterpret_cast<pto_a2a3_log*>(address);
    level_ = level;
    if (ring_ == nullptr) return;
    std::memset(static_cast<void*>(ring_), 0, sizeof *ring_);
    Aicpu::clean(ring_, sizeof *ring_);
    Aicpu::order_stores();
  }

  // The host has read `read` entries, so their places are free.
  void set_read(uint64_t read) { read_.store(read, std::memory_order_release); }

  void write(int32_t level, const char* message) {
    if (level == PTO_LOG_ERROR) note_error(message);
    if (ring_ == nullptr || level < PTO_LOG_ALWAYS || level > level_) return;
    while (locked_.exchange(true, std::memory_order_acquire)) {
    }
    if (written_ - read_.load(std::memory_order_acquire) < PTO_A2A3_LOG_ENTRIES) {
      append(level, message);
    } else {
      ++dropped_;
    }
    Aicpu::store_flag(&ring_->dropped, dropped_);
    Aicpu::store_flag(&ring_->written, written_);
    Aicpu::clean(ring_, PTO_A2A3_LINE);
    Aicpu::order_stores();
    locked_.store(false, std::memory_order_release);
  }

 private:
  void append(int32_t level, const char* message) {
    pto_a2a3_log_entry& entry = ring_->entry[written_ % PTO_A2A3_LOG_ENTRIES];
    engine::Text text(entry.text, sizeof entry.text);
    text.add(message);
    entry.level = level;
    entry.length = static_cast<uint32_t>(text.length());
    Aicpu::order_stores();
    Aicpu::store_flag(&entry.number, ++written_);
    Aicpu::clean(&entry, sizeof entry);
    Aicpu::order_stores();
  }

  pto_a2a3_log* ring_ = nullptr;
  int32_t level_ = PTO_LOG_ERROR;
  std::atomic<bool> locked_{false};
  uint64_t written_ = 0, dropped_ = 0;
  std::atomic<uint64_t> read_{0};
};

}  // namespace pto::a2a3
