// The tasks, runs and failure causes of a driver. Only the thread that has the driver role uses it.
//
// Invariant: a task has a record from its submit until it has finished.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "driver/child_link.hpp"
#include "driver/records.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

class RunBook {
 public:
  // Begin a run with this number. Keep the causes of lost children, because later tasks may fail
  // with these causes.
  void begin(const std::vector<std::unique_ptr<ChildLink>>& links, uint32_t number);
  // Record that a run is over.
  void end(const RunOutcomes& run) { open_[run.number].reset(); }
  // Return the run that began last.
  const std::shared_ptr<RunOutcomes>& outcomes() const { return outcomes_; }
  std::vector<std::shared_ptr<RunOutcomes>> open_runs() const;
  // Return the open run with this number.
  RunOutcomes& run(uint32_t number) const { return *open_[number]; }
  // Return the run of a live task, or the run that began last.
  RunOutcomes& run_of(int64_t task);

  void note_submitted(int64_t task) { newest_ = task; }
  int64_t next_task() const { return newest_ + 1; }
  bool has_ended(int64_t task) { return records.find(task) == nullptr; }
  // Record that the task with this record has finished.
  void finish(const Instruction& instruction, const SentTask& record);

  int64_t next_cause() { return next_cause_++; }
  int64_t add_cause(std::string data);
  // Return a cause from the outcomes `of`, if it is not null, otherwise of the open runs and the
  // last run.
  std::optional<Cause> cause(int64_t number, const RunOutcomes* of = nullptr) const;
  // Set the data of a cause that has no data yet, such as a deadline.
  void explain(int64_t cause, std::string data);
  // Return a task that ended without completing, from the outcomes `of`, if it is not null,
  // otherwise of the open runs and the last run.
  std::optional<EndedTask> ended(int64_t task, const RunOutcomes* of, int32_t* child) const;
  // Return the tasks of a run that use this memory of the host, and that have not completed.
  std::vector<int64_t> users(AddressSpan memory, const RunOutcomes& run);
  static EndedTask ended_from(const SentTask& record);

  Records records;
  TaskCounts counts;  // of all runs since no run was open

 private:
  // Call visit(run) for the last run and the open runs, until it returns true.
  template <class Visit>
  void find_run(Visit visit) const;

  std::shared_ptr<RunOutcomes> outcomes_ = std::make_shared<RunOutcomes>();
  std::vector<std::shared_ptr<RunOutcomes>> open_;  // by number; null: no open run has the number
  std::unordered_map<int64_t, Cause> causes_;       // causes added by the host
  int64_t newest_ = kNone;
  int64_t next_cause_ = 0;
  int64_t first_cause_ = 0;  // the first cause that was added since begin() dropped causes
};

// The tasks that event loops await, and the descriptor that wakes the loops.
//
// The descriptor is readable while take() has tasks to return. Only the thread that has the driver
// role uses this class.
class Watches {
 public:
  Watches() = default;
  ~Watches() { stop(); }
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  // Return the descriptor, an eventfd that is created on demand. On failure return -1 and set
  // errno. stop() closes the descriptor and drops all tasks.
  int descriptor();
  void stop();
  bool is_empty() const { return watched_.empty(); }
  void add(int64_t task) { watched_.insert(task); }
  // Record that the task has ended.
  void end(int64_t task) {
    if (watched_.erase(task) > 0) report(task);
  }
  // Return all watched tasks from the next take(), although they have not ended, so that the loops
  // check them again.
  void end_all();
  // Return the watched tasks that have ended since the last call.
  std::vector<int64_t> take();

 private:
  void report(int64_t task);

  std::unordered_set<int64_t> watched_;
  std::vector<int64_t> ended_;
  int descriptor_ = -1;
};

}  // namespace pto::worker
