// The tasks of a run and the edges between them.
//
// All memory comes from the platform; it stays reserved between runs. The owner calls one method at
// a time, except the counters, which any thread may read.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/engine/context.hpp"
#include "pto/engine/kernel_table.hpp"
#include "pto/engine/memory.hpp"

namespace pto_runtime_template {

constexpr int64_t kNone = -1;

struct Task {
  pto_payload* payload;  // the dispatched bytes: header and arguments
  uint32_t length;       // of the payload, in bytes
  int32_t core_type;
  int64_t waits;       // number of predecessors that have not completed
  int64_t first_edge;  // index of its newest edge to a successor
  int64_t next_ready;  // the task behind it in the queue of ready tasks
  int64_t producer;    // a predecessor that has not completed; set by find_cycle()
  bool is_complete;
};

struct Edge {
  int64_t to;
  int64_t next;  // index of the next edge of the same task
};

class Graph {
 public:
  explicit Graph(pto::engine::Context& context) : context_(context) {}

  bool create();
  void destroy();
  // Removes all tasks and takes the kernels of the next run. Returns the status of the run.
  pto_status begin(const pto_run& run);

  // Returns the id of the new task; -1 after an error.
  int64_t add_task(const pto_task& submitted);
  pto_status add_edge(int64_t from, int64_t to);

  // Returns a task of a cycle of tasks that have not completed, which Task::producer links
  // backwards; kNone if there is none.
  int64_t find_cycle() const;

  Task& task(int64_t id) const { return tasks_[static_cast<uint64_t>(id)]; }
  Edge& edge(int64_t index) const { return edges_[static_cast<uint64_t>(index)]; }
  int64_t tasks() const { return task_count_; }
  int64_t edges() const { return edge_count_; }

 private:
  pto_status check(const pto_task& submitted, int32_t core_type, uint64_t kernel);
  pto_status out_of_memory(const char* what);

  pto::engine::Context& context_;
  pto::engine::KernelTable kernels_;
  pto::engine::ChunkedArray<Task, 12> tasks_;
  pto::engine::ChunkedArray<Edge, 14> edges_;
  pto::engine::Arena payloads_;
  std::atomic<int64_t> task_count_{0}, edge_count_{0};
};

}  // namespace pto_runtime_template
