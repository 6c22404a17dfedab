// Writes the texts that kernels print (pto/kernel/print.hpp), for all backends in one form.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "pto/engine/task_name.hpp"
#include "pto/engine/text.hpp"
#include "pto/host/runtime_log.hpp"

namespace pto::host {

struct KernelText {
  const char* kernel;  // its name
  uint64_t task;
  uint32_t core;
  const char* file;  // without folders
  int32_t line;
  const char* text;
};

// Any thread may call print().
class KernelLog {
 public:
  KernelLog(int32_t device, bool is_json) noexcept : device_(device), is_json_(is_json) {}

  // Called between runs. `capabilities` are those of the runtime.
  void begin_run(uint32_t blocks, uint32_t capabilities) noexcept {
    blocks_ = blocks;
    capabilities_ = capabilities;
    lines_.store(0, std::memory_order_relaxed);
  }

  const char* type_of(uint32_t core) const noexcept { return core < blocks_ ? "AIC" : "AIV"; }
  // Returns the number of the core among those of its type.
  uint32_t number_of(uint32_t core) const noexcept {
    return core < blocks_ ? core : core - blocks_;
  }

  // Prints the lines of a text. After kMostLines lines of a run, one line states the limit.
  void print(const KernelText& text) noexcept {
    char task[64];
    engine::Text(task, sizeof task)
        .add(engine::TaskName{static_cast<int64_t>(text.task), capabilities_});
    for (const char* next = text.text; next != nullptr;) {
      const uint32_t before = lines_.fetch_add(1, std::memory_order_relaxed);
      if (before > kMostLines) return;
      const size_t length = std::strcspn(next, "\n");
      char shown[1536];
      std::snprintf(shown, sizeof shown, "%s (%s, %s %u, device %d), %s:%d: %.*s", text.kernel,
                    task, type_of(text.core), number_of(text.core), device_, text.file, text.line,
                    static_cast<int>(length), next);
      if (before == kMostLines) {
        std::snprintf(shown, sizeof shown,
                      "the kernels of this run have printed %u lines; further lines are not shown",
                      kMostLines);
      }
      write_log(PTO_LOG_ALWAYS, shown, is_json_);
      const bool is_last = next[length] == 0 || next[length + 1] == 0;
      next = is_last ? nullptr : next + length + 1;
    }
  }

  void warn(const char* message) const noexcept { write_log(PTO_LOG_WARN, message, is_json_); }

 private:
  static constexpr uint32_t kMostLines = 10'000;

  const int32_t device_;
  const bool is_json_;
  uint32_t blocks_ = 0;
  uint32_t capabilities_ = 0;
  std::atomic<uint32_t> lines_{0};  // of this run
};

}  // namespace pto::host
