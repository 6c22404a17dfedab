#include "endpoint/interruption.hpp"

#include <utility>

#include "errors.hpp"

namespace nb = nanobind;

namespace pto::hierarchy {
namespace {

thread_local PyObject* kept = nullptr;  // a reference

}  // namespace

std::atomic<uint32_t> interruptions{0};

void keep_interruption() {
  nb::object exception = core::take_exception();
  if (kept) return;
  kept = exception.release().ptr();
  interruptions.fetch_add(1, std::memory_order_relaxed);
}

void raise_kept_interruption() {
  if (!kept) return;
  interruptions.fetch_sub(1, std::memory_order_relaxed);
  core::raise_exception(nb::steal(std::exchange(kept, nullptr)));
}

}  // namespace pto::hierarchy
