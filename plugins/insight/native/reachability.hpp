// The order of tasks: answers whether one task is ordered before another.
//
// The tasks are divided into chains. In a chain, each task is ordered before the next one. A task
// continues the chain of the producer below which it has the longest path, or the chain of an
// earlier task that no other task continues; otherwise it begins a chain. The number of chains is
// close to the width of the graph.
//
// The tasks with one producer form trees; pre-order numbers answer a question inside a tree. Each
// other task, a root, has a clock: the last task of each chain that is ordered before it. So a
// question costs one search in a clock, and memory is used for tasks with several producers only.
#pragma once

#include <cstdint>
#include <vector>

#include "tables.hpp"

namespace pto::insight {

class Reachability {
 public:
  // producers[first[t]] to producers[first[t + 1] - 1] are the producers of task t, all smaller
  // than t, without duplicates.
  Reachability(const std::vector<uint32_t>& first, const std::vector<uint32_t>& producers);

  // Return whether task `a` ends before task `b` starts, in every run.
  bool is_before(uint32_t a, uint32_t b) const;

  // Return for each producer whether the other producers of the task imply the order.
  const std::vector<bool>& redundant() const { return redundant_; }

  uint32_t chains() const { return chains_; }

 private:
  struct Entry {
    uint32_t chain;
    uint32_t last;  // position in the chain
  };

  void build_trees(const std::vector<uint32_t>& first, const std::vector<uint32_t>& producers);
  void build_chains(const std::vector<uint32_t>& first, const std::vector<uint32_t>& producers);
  void build_clock(uint32_t task, const uint32_t* producers, uint32_t count, uint64_t first);
  void take(uint32_t chain, uint32_t last);
  void take_ancestors(uint32_t task);
  bool is_in_tree_of(uint32_t a, uint32_t b) const {
    return enter_[a] <= enter_[b] && enter_[b] < exit_[a];
  }

  uint32_t chains_ = 0;
  std::vector<uint32_t> chain_;     // of each task
  std::vector<uint32_t> position_;  // of each task, in its chain
  std::vector<uint32_t> parent_;    // the only producer of a task; kNone for a root
  std::vector<uint32_t> root_;
  std::vector<uint32_t> run_;           // first task of the unbroken run of a chain inside the tree
  std::vector<uint32_t> enter_, exit_;  // pre-order numbers in the forest
  std::vector<uint64_t> first_entry_;   // of each task's clock in entries_; task t ends at t + 1
  std::vector<Entry> entries_;          // of each clock: by chain
  std::vector<bool> redundant_;
  // the clock that is being built
  std::vector<uint32_t> joined_;  // of each chain: last position + 1
  std::vector<uint32_t> touched_;
};

}  // namespace pto::insight
