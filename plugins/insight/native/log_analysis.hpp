// The analysis of an access log: edges with their reasons, the order of tasks, and conflicts.
//
// Tasks and accesses are identified by their index in the log. Constant after construction, except
// for the order, which is computed at the first question.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "conflicts.hpp"
#include "edges.hpp"
#include "reachability.hpp"
#include "tables.hpp"

namespace pto::insight {

// An edge: at least one reason, and whether other edges imply it.
struct TaskPair {
  uint32_t first;
  uint32_t second;
  uint32_t is_redundant;
};

class LogAnalysis {
 public:
  // Throws BadLog, also if the edges form a cycle.
  LogAnalysis(std::vector<pto_logged_task> tasks, std::vector<pto_tensor_data> accesses,
              std::vector<pto_logged_event> events, bool is_full, uint32_t blocks);

  const std::vector<EdgeReason>& reasons() const { return edges_.reasons; }
  const std::vector<uint32_t>& unwritten() const { return edges_.unwritten; }
  const std::vector<TaskPair>& edges() const { return unique_; }
  // Return (begin, end) of the bytes of an access, by the addresses of LogTables.
  std::vector<uint64_t> extents() const;
  // Raises std::out_of_range for a task that does not exist.
  bool is_before(uint32_t a, uint32_t b) const;
  Conflicts conflicts(uint64_t limit) const { return find_conflicts(tables_, *order_, limit); }

 private:
  void sort_reasons();
  void rank_tasks();
  void build_order();

  const std::vector<pto_logged_task> tasks_;
  const std::vector<pto_tensor_data> accesses_;
  const std::vector<pto_logged_event> events_;
  const LogTables tables_;
  Edges edges_;
  std::vector<TaskPair> unique_;  // by second, then by first task
  std::vector<uint32_t> rank_;    // of each task in an order in which each edge leads forward
  std::optional<Reachability> order_;
};

}  // namespace pto::insight
