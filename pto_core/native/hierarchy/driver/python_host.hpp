// The Host of a Worker: it manages the GIL and signals, and calls hooks in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "driver/host.hpp"
#include "interrupts.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

// `hooks` has poll(), end_child(child, cause), child_broken(child, message) and grant(ring, nbytes)
// -> int. Call give_up() with the GIL held. The hooks are called with the GIL held.
class PythonHost : public Host {
 public:
  explicit PythonHost(nb::object hooks) : hooks_(std::move(hooks)) {}

  void give_up() override;
  void take() override;
  void leave() override;
  bool hold_interrupts() override { return core::interrupts::hold(); }
  void release_interrupts() noexcept override { core::interrupts::release(); }
  void attend(bool is_callers) override;
  void end_child(int32_t child, int64_t cause) override;
  void child_broken(int32_t child, const std::string& message) override;
  uint64_t grant(uint32_t ring, uint64_t bytes) override;

  nb::object& hooks() { return hooks_; }

 private:
  nb::object hooks_;
};

}  // namespace pto::hierarchy
