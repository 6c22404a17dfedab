// The native engine. Its specification is the reference engine,
// pto_core.hierarchy.engine.reference. Property tests drive both with the same events and compare
// every answer and snapshot.
#pragma once

#include <memory>

#include "engine/interface.hpp"
#include "engine/policy.hpp"
#include "engine/snapshot.hpp"
#include "engine/states.hpp"

namespace pto::hierarchy {

class NativeEngine : public Engine {
 public:
  // Throws Refusal for an invalid configuration. An empty policy selects the child with the fewest
  // frames in flight.
  explicit NativeEngine(const Configuration& configuration, Policy policy = {});
  ~NativeEngine() override;

  void run_begin(Hazards hazards, Instructions& out) override;
  void run_end(Instructions& out) override;
  Submitted submit(const Submission& submission, Instructions& out) override;
  Submitted allocate(uint64_t bytes, uint64_t* address, Instructions& out) override;
  void scope_begin() override;
  void scope_end(Instructions& out) override;
  void dispatch(Instructions& out) override;
  void completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause,
                  Instructions& out) override;
  void child_ready(int32_t child, Instructions& out) override;
  void child_lost(int32_t child, int64_t cause, uint64_t started, bool returns,
                  Instructions& out) override;
  void deadline(int32_t child, uint64_t count, int64_t cause, Instructions& out) override;
  void cancel(int64_t cause, Instructions& out) override;

  bool is_quiescent() const override;
  bool deadlock(Deadlock* proof) const override;
  std::vector<std::pair<int64_t, int64_t>> failures() const override;
  std::vector<std::pair<int64_t, int64_t>> poisonings() const override;

  void set_tracer(Tracer* tracer) override;

  // Return the edges and owners of the last submit, by task number, for a capture.
  void report_found(std::vector<std::pair<int64_t, uint8_t>>* producers,
                    std::vector<int64_t>* owners) const;
  Snapshot snapshot() const;
  // Throw kInternal if an invariant does not hold. Slow; for tests.
  void validate() const;

 private:
  struct Parts;

  void begin_event(Instructions& out);
  void end_event();
  void check_open(const char* what) const;
  void end_scope();

  std::unique_ptr<Parts> parts_;
};

}  // namespace pto::hierarchy
