// The tasks, runs and failure causes of a driver. Owner: the driver role.
//
// Invariant: a task has a record from its submit until it has finished.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/child_link.hpp"
#include "driver/outcomes.hpp"
#include "driver/records.hpp"
#include "engine/interface.hpp"

namespace pto::hierarchy {

struct TaskCounts {  // run to which the causes belong
  int64_t submitted = 0;
  int64_t finished = 0;
  int64_t failed = 0;
  int64_t poisoned = 0;
};

class RunBook {
 public:
  // Causes of lost children are kept, because later tasks may fail for them.
  void begin(const std::vector<std::unique_ptr<ChildLink>>& links);
  // Return the outcomes of the last run; after begin(), of the new run.
  const std::shared_ptr<RunOutcomes>& outcomes() const { return outcomes_; }

  void note_submitted(int64_t task) { newest_ = task; }
  int64_t next_task() const { return newest_ + 1; }
  bool has_ended(int64_t task) { return records.find(task) == nullptr; }
  // Record that the task with this record has finished.
  void finish(const Instruction& instruction, const TaskRecord& record);

  int64_t next_cause() { return next_cause_++; }
  int64_t add_cause(std::string data);
  // Return the result from the last run, or from the run with those outcomes.
  std::optional<Cause> cause(int64_t number, const RunOutcomes* of = nullptr) const;
  // Set the data of a cause of this run that has none, such as a deadline.
  void explain(int64_t cause, std::string data);
  // Return a task of the last run, or of the run with those outcomes, that ended without
  // completing.
  std::optional<EndedTask> ended(int64_t task, const RunOutcomes* of, int32_t* child) const;
  static EndedTask ended_from(const TaskRecord& record);

  Records records;
  TaskCounts counts;

 private:
  std::shared_ptr<RunOutcomes> outcomes_ = std::make_shared<RunOutcomes>();
  std::unordered_map<int64_t, Cause> causes_;  // causes added by the host
  int64_t newest_ = kNone;
  int64_t next_cause_ = 0;
  int64_t first_cause_ = 0;  // added since the last run began
};

}  // namespace pto::hierarchy
