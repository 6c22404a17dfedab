// The access log of a run as the analysis uses it: tasks by index, and one region for each access.
//
// Heap buffers of one run can share memory, because rings are reused. The analysis therefore gives
// the outputs of each task addresses of their own, above kHeap. The address of a byte is then the
// same in every run of the program, and no two buffers overlap.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "pto/abi/access_log.h"
#include "pto/engine/region.hpp"
#include "pto/engine/tag.hpp"

namespace pto::insight {

using engine::Region;
using engine::Tag;

constexpr uint32_t kNone = ~uint32_t{0};  // means no task, no access

// The rows do not form a log.
class BadLog : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct LogRows {
  std::span<const pto_logged_task> tasks;
  std::span<const pto_tensor_data> accesses;
  std::span<const pto_logged_event> events;
};

class LogTables {
 public:
  static constexpr uint64_t kHeap = uint64_t{1} << 62;

  // Throws BadLog. The rows must live as long as this object.
  explicit LogTables(const LogRows& rows);

  uint32_t tasks() const { return static_cast<uint32_t>(rows_.tasks.size()); }
  uint32_t accesses() const { return static_cast<uint32_t>(rows_.accesses.size()); }
  std::span<const pto_logged_event> events() const { return rows_.events; }
  uint32_t first_access(uint32_t task) const {
    return task == 0 ? 0 : rows_.tasks[task - 1].accesses;
  }
  uint32_t end_access(uint32_t task) const { return rows_.tasks[task].accesses; }
  uint32_t task_of(uint32_t access) const { return task_of_[access]; }
  Tag tag(uint32_t access) const { return static_cast<Tag>(rows_.accesses[access].tag); }
  const Region& region(uint32_t access) const { return regions_[access]; }
  // Return whether the task has the rules of 2026-08 for edges.
  bool is_of_2026_08(uint32_t task) const {
    return (rows_.tasks[task].traits & PTO_LOGGED_2026_08) != 0;
  }
  // Return whether the row is an access of the orchestration, not a task.
  bool is_of_host(uint32_t task) const { return (rows_.tasks[task].traits & PTO_LOGGED_HOST) != 0; }
  // Return whether the access counts as a use of its memory, for which a write of the host waits.
  bool is_known_use(uint32_t access) const {
    const bool has_edges = rows_.accesses[access].reserved[1] != PTO_LOGGED_ACCESS_NONE;
    return has_edges && !is_manual(task_of(access));
  }
  // Return whether the access takes part in look-ups. The others have edges to the owner at most.
  bool is_looked_up(uint32_t access) const {
    return rows_.accesses[access].reserved[1] == 0 && !is_manual(task_of(access));
  }
  // Return the access by which another task allocated the memory, if the task of this access waits
  // for it; else kNone.
  uint32_t owner_to_wait_for(uint32_t access) const;
  // Return whether the submit of the access allocated its memory.
  bool is_fresh(uint32_t access) const {
    return tag(access) == Tag::kOutput && owner_of_[access] == task_of_[access];
  }
  // Return the index of the task with this id. Throws BadLog.
  uint32_t index_of(int64_t id) const;

 private:
  bool is_manual(uint32_t task) const {
    return (rows_.tasks[task].traits & PTO_LOGGED_MANUAL) != 0;
  }
  void check() const;
  void place();

  const LogRows rows_;
  std::unordered_map<int64_t, uint32_t> index_of_;
  std::vector<uint32_t> task_of_;   // one for each access
  std::vector<uint32_t> owner_of_;  // one for each access; kNone: no task owns the memory
  std::vector<Region> regions_;     // one for each access
};

}  // namespace pto::insight
