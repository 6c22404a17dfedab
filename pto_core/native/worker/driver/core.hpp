// The data of a driver. Only the thread that has the driver role uses it; see role.hpp.
//
// Invariants: a frame that the engine has sent is in the link of its child, in the engine's order;
// an answer is passed to the engine before any later frame is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/captured_graph.hpp"
#include "driver/child_link.hpp"
#include "driver/host.hpp"
#include "driver/near_inputs.hpp"
#include "driver/records.hpp"
#include "driver/run_book.hpp"
#include "engine/engine.hpp"
#include "progress_table.hpp"
#include "trace/tracer.hpp"

namespace pto::worker {

enum class ReplyState { kPending, kGiven, kLost };

// The replies of children to control frames. They are stored until the caller takes them. Only the
// thread that has the driver role uses this class.
class Replies {
 public:
  // Return a number for a control frame whose reply is dropped.
  uint64_t next() { return next_++; }
  // Return a number for a control frame whose reply the caller will take. If too many replies are
  // stored, the oldest are dropped.
  uint64_t expect() {
    if (replies_.size() >= kMost)
      std::erase_if(replies_,
                    [](const auto& each) { return each.second.state != ReplyState::kPending; });
    replies_[next_];
    return next_++;
  }
  void give(uint64_t number, const void* data, size_t bytes) {
    const auto found = replies_.find(number);
    if (found == replies_.end()) return;
    found->second.state = ReplyState::kGiven;
    found->second.data.assign(static_cast<const char*>(data), data ? bytes : 0);
  }
  void lose(uint64_t number) {
    const auto found = replies_.find(number);
    if (found != replies_.end()) found->second.state = ReplyState::kLost;
  }
  // Return the state of a reply. If it has arrived, move it to `data` and forget the number. Return
  // kLost if no reply with this number is expected.
  ReplyState take(uint64_t number, std::string* data) {
    const auto found = replies_.find(number);
    if (found == replies_.end()) return ReplyState::kLost;
    const ReplyState state = found->second.state;
    if (state == ReplyState::kPending) return state;
    *data = std::move(found->second.data);
    replies_.erase(found);
    return state;
  }

 private:
  static constexpr size_t kMost = 1024;

  struct Reply {
    ReplyState state = ReplyState::kPending;
    std::string data;
  };

  std::unordered_map<uint64_t, Reply> replies_;
  uint64_t next_ = 1;
};

struct SavedRange {
  uint64_t address;
  uint64_t bytes;
};

// Copies of the regions that a task changes in place, to restore them before a retry. They are kept
// while the task may run again.
//
// The total memory is limited: a task reserves memory for its copies at the submit and frees it at
// its end. Only the thread that has the driver role uses this class.
class SavedRegions {
 public:
  explicit SavedRegions(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // fits(): return whether `bytes` more bytes can be reserved now. fits_ever(): return whether they
  // can be reserved when all copies have been freed.
  bool fits(uint64_t bytes) const { return bytes <= limit_bytes_ - reserved_bytes_; }
  bool fits_ever(uint64_t bytes) const { return bytes <= limit_bytes_; }

  void reserve(int64_t task, std::vector<SavedRange> ranges, uint64_t bytes);
  void save(int64_t task);
  void restore(int64_t task);
  void drop(int64_t task);
  // Free the copies, because the task has ended or was never sent.
  void end(int64_t task);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t reserved_bytes() const { return reserved_bytes_; }
  uint64_t saved_bytes() const { return saved_bytes_; }
  uint64_t most_saved_bytes() const { return most_saved_bytes_; }
  bool is_empty() const { return kept_.empty(); }

 private:
  struct Kept {
    std::vector<SavedRange> ranges;
    uint64_t bytes;
    std::unique_ptr<std::byte[]> copy;  // null until the task is sent
  };

  std::unordered_map<int64_t, Kept> kept_;
  uint64_t limit_bytes_;
  uint64_t reserved_bytes_ = 0;
  uint64_t saved_bytes_ = 0;
  uint64_t most_saved_bytes_ = 0;
};

// The tasks that wait before their next attempt. Only the thread that has the driver role uses this
// class.
class Delays {
 public:
  // `count`: set to the number of the tasks.
  explicit Delays(std::atomic<uint64_t>& count) : count_(count) {}

  bool is_empty() const { return ends_ns_.empty(); }
  void add(int64_t task, uint64_t end_ns) {
    ends_ns_[task] = end_ns;
    count_ = ends_ns_.size();
  }
  void end(int64_t task) {
    if (ends_ns_.erase(task) > 0) count_ = ends_ns_.size();
  }
  // Remove and return the tasks whose wait has ended, oldest first.
  std::vector<int64_t> take_due(uint64_t now_ns) {
    std::vector<int64_t> due;
    for (const auto& [task, end_ns] : ends_ns_)
      if (end_ns <= now_ns) due.push_back(task);
    for (const int64_t task : due) end(task);
    return due;
  }

 private:
  std::map<int64_t, uint64_t> ends_ns_;  // the end of each wait (CLOCK_MONOTONIC)
  std::atomic<uint64_t>& count_;
};

struct DriverConfiguration {
  Configuration engine;
  void* progress = nullptr;  // created by ProgressTable::create for the same number of children
  uint64_t snapshot_limit_bytes = uint64_t{1} << 30;
  TraceMemory trace;
  uint64_t patience_ns = 2'000'000'000;  // grace period for running tasks when a run is interrupted
  bool calls_python = false;             // whether the policy is in Python
  std::shared_ptr<NearInputs> near_inputs;  // null: the policy does not depend on inputs
};

// A host call that must wait until the role is released: it ends a child, for a cause or because
// the connection broke.
struct Action {
  int32_t child;
  int64_t cause;  // kNone: the connection broke
  uint64_t connection;
  std::string message;
};

struct DriverCore {
  DriverCore(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
             SharedFlags& flags);
  ~DriverCore();

  // Throws Refusal (closed) after Driver::stop().
  void check_open() const;
  // Return the run; null stands for the run that began last. Also throws Refusal if it is over.
  RunOutcomes& open_run(RunOutcomes* run) const;
  ChildLink& link(int32_t child) { return *links[static_cast<size_t>(child)]; }
  const ChildLink& link(int32_t child) const { return *links[static_cast<size_t>(child)]; }

  const DriverConfiguration& configuration;
  SharedFlags& flags;
  const std::unique_ptr<Engine> engine;
  ProgressTable progress;
  Tracer tracer;
  std::vector<std::unique_ptr<ChildLink>> links;
  Catalogue catalogue;
  RunBook book;
  SavedRegions regions;
  Delays delays;
  Replies replies;
  Watches watches;
  Instructions out;
  std::vector<Action> actions;
  // the captured graph of the run; the records of its tasks point to its blobs
  std::shared_ptr<CapturedGraph> replayed;
  // exception of the driver's own thread, which the next wait of the program throws
  std::exception_ptr failure;
  bool is_dirty = false;  // whether the engine may have frames to send
};

// Throw the Refusal of a submit for a run that is not open.
[[noreturn]] void refuse_outside_run();

struct DriverStatistics {
  TaskCounts tasks;      // of all runs since no run was open
  uint64_t waiting = 0;  // number of tasks with a record that are not in a child
  uint64_t in_flight = 0;
  uint64_t saved_bytes = 0;
  uint64_t most_saved_bytes = 0;
};

DriverStatistics statistics_of(const DriverCore& core);

}  // namespace pto::worker
