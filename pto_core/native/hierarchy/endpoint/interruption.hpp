// What a signal's handler raised on a thread that was where nothing can be raised.
//
// It is kept for that thread until it is back at its caller, and raised there. With the GIL.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::hierarchy {

// How many threads keep one; to look at before the rest.
extern std::atomic<uint32_t> interruptions;

// Takes the exception that is set. One that is kept already stays, as it came first.
void keep_interruption();
// Throws what this thread keeps, as nanobind::python_error.
void raise_kept_interruption();

inline void raise_interruption() {
  if (interruptions.load(std::memory_order_relaxed) != 0) raise_kept_interruption();
}

}  // namespace pto::hierarchy
