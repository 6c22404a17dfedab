// Repeats the submits of a captured graph without calling the program. Only a thread with the
// driver role may use it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "driver/captured_graph.hpp"
#include "driver/core.hpp"
#include "driver/exchange.hpp"
#include "driver/submitter.hpp"

namespace pto::hierarchy {

class Replayer {
 public:
  Replayer(DriverCore& core, Exchange& exchange, Submitter& submitter)
      : core_(core), exchange_(exchange), submitter_(submitter) {}

  // Make the steps from `at` up to `stop`. Return `stop`, or the position of the first step that
  // was not made: it needs a grant of heap memory first, or there is no free space for it now.
  size_t make_steps(CapturedGraph& graph, size_t at, size_t stop, bool is_known);
  // Make one step. Return false if there is no free space now. `is_known`: the captured edges hold.
  // Throws the same exceptions as a submit, and a Refusal if another thread has ended the run.
  bool try_step(CapturedGraph& graph, const CapturedStep& step, bool is_known);

 private:
  bool is_granted(const CapturedGraph& graph, const CapturedStep& step) const;
  bool try_allocate(CapturedGraph& graph, const CapturedStep& step);
  bool try_resubmit(CapturedGraph& graph, const CapturedTask& task, bool is_known);
  std::span<const int64_t> explicit_producers(std::span<const Known::Producer> producers);
  void fill_keys(const CapturedGraph& graph, const CapturedTask& task);
  void fill_members(const CapturedGraph& graph, const CapturedTask& task, bool has_keys);
  uint64_t ranges_of(const CapturedTask& task, std::vector<SavedRange>* ranges) const;
  void keep(CapturedGraph& graph, const CapturedTask& task, int64_t number);
  void trace(CapturedGraph& graph, const CapturedTask& task, int64_t number, uint64_t begin);

  DriverCore& core_;
  Exchange& exchange_;
  Submitter& submitter_;
  std::vector<Tensor> keys_;  // keys of the current task; kept to reuse their memory
  std::vector<Member> members_;
  std::vector<int64_t> after_;
};

// Return the bytes that a step allocates in its heap ring.
uint64_t bytes_to_reserve(const CapturedGraph& graph, const CapturedStep& step);

}  // namespace pto::hierarchy
