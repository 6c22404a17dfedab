// Texts of kernels on a native device: a kernel writes them into the pto_a2a3_texts of its core.
//
// A kernel of a card is code without constants, so it has no texts, and the chip does not listen.
#pragma once

#ifdef PTO_A2A3_CHIP

namespace pto::a2a3 {

inline bool listen_to_texts(void*) {
  return false;
}

}  // namespace pto::a2a3

#else

#include <unistd.h>

#include "access/native.hpp"
#include "pto/engine/text.hpp"

namespace pto::a2a3 {

inline void write_text(pto_a2a3_text& to, const pto_a2a3_texts& texts, const char* file,
                       int32_t line, const char* text) {
  const pto_payload& task = reinterpret_cast<const pto_a2a3_slot*>(texts.slot)->payload;
  to.kernel = task.kernel;
  to.task = task.task;
  to.line = line;
  for (const char* at = file; *at != '\0'; ++at) {
    if (*at == '/') file = at + 1;
  }
  engine::Text(to.file, sizeof to.file).add(file);
  engine::Text(to.text, sizeof to.text).add(text);
  NativeCore::order_stores();
}

// A full ring has a place when the host has read it, which it does every 10 ms.
inline bool has_place(const pto_a2a3_texts& texts) {
  constexpr uint64_t kLongestNs = 1'000'000'000;
  const uint64_t end = NativeAicpu::now_ns() + kLongestNs;
  for (;;) {
    NativeCore::invalidate(&texts.read, PTO_A2A3_LINE);
    if (texts.written - NativeCore::load_flag(&texts.read) < PTO_A2A3_TEXTS) return true;
    if (NativeAicpu::now_ns() >= end) return false;
    NativeAicpu::rest(NativeAicpu::changes());
  }
}

inline void add_text(pto_a2a3_texts& texts, const char* file, int32_t line, const char* text) {
  if (has_place(texts)) {
    pto_a2a3_text& entry = texts.entry[texts.written % PTO_A2A3_TEXTS];
    write_text(entry, texts, file, line, text);
    NativeCore::store_flag(&entry.number, texts.written + 1);
    NativeCore::clean(&entry, sizeof entry);
    NativeCore::order_stores();
    NativeCore::store_flag(&texts.written, texts.written + 1);
  } else {
    NativeCore::store_flag(&texts.dropped, texts.dropped + 1);
  }
  NativeCore::clean(&texts, PTO_A2A3_LINE);
  NativeCore::order_stores();
}

// The listener of pto/kernel/print.hpp.
inline void take_text(const char* file, int32_t line, int32_t is_failure, const char* text) {
  auto* texts = reinterpret_cast<pto_a2a3_texts*>(silicon_texts());
  if (texts == nullptr) {  // a thread that the kernel has started
    char shown[1200];
    engine::Text line_of(shown, sizeof shown);
    line_of.add("pto: a thread of a kernel, ", file, ":", line, ": ", text);
    shown[line_of.length()] = '\n';
    if (write(STDERR_FILENO, shown, line_of.length() + 1) < 0) return;
  } else if (is_failure == 0) {
    add_text(*texts, file, line, text);
  } else {
    write_text(texts->failure, *texts, file, line, text);
    NativeCore::clean(&texts->failure, sizeof texts->failure);
    NativeCore::order_stores();
    silicon_leave_kernel();
  }
}

// Returns whether the kernel prints. `listen` is its function pto_listen_to_texts, or null.
inline bool listen_to_texts(void* listen) {
  using Listen = void (*)(decltype(&take_text));
  if (listen != nullptr) reinterpret_cast<Listen>(listen)(take_text);
  return listen != nullptr;
}

}  // namespace pto::a2a3

#endif
