// The data of a driver. Only the thread that has the driver role uses it; see role.hpp.
//
// Invariants: a frame that the engine has sent is in the link of its child, in the engine's order;
// an answer is passed to the engine before any later frame is sent.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "driver/captured_graph.hpp"
#include "driver/catalogue.hpp"
#include "driver/child_link.hpp"
#include "driver/near_inputs.hpp"
#include "driver/regions.hpp"
#include "driver/replies.hpp"
#include "driver/run_book.hpp"
#include "driver/shared_flags.hpp"
#include "driver/watches.hpp"
#include "engine/engine.hpp"
#include "progress_table.hpp"
#include "trace/tracer.hpp"

namespace pto::hierarchy {

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
  // Also throws Refusal if `run` is not the last run that began. Null stands for that run.
  void check_run(const RunOutcomes* run) const;
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
  TaskCounts tasks;      // time limit of the run
  uint64_t waiting = 0;  // number of tasks with a record that are not in a child
  uint64_t in_flight = 0;
  uint64_t saved_bytes = 0;
  uint64_t most_saved_bytes = 0;
};

DriverStatistics statistics_of(const DriverCore& core);

}  // namespace pto::hierarchy
