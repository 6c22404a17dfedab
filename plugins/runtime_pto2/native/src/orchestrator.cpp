#include "orchestrator.hpp"

#include <algorithm>

#include "tensor_wait.hpp"

namespace pto::ring_buffer {
namespace {

// A read of memory that no task has written orders nothing, so it is not logged.
[[gnu::cold]] bool log_host_access(engine::AccessLog& log, pto_tensor_data tensor, bool for_write,
                                   CallSite at) {
  const pto_access_log known = log.content();
  const auto end = [](const pto_buffer& buffer) { return buffer.addr + buffer.size; };
  const auto is_writer = [&](const pto_tensor_data& one) {
    return one.tag != PTO_TAG_INPUT && one.buffer.addr < end(tensor.buffer) &&
           tensor.buffer.addr < end(one.buffer);
  };
  if (!for_write && std::none_of(known.accesses, known.accesses + known.num_accesses, is_writer)) {
    return true;
  }
  tensor.tag = for_write ? PTO_TAG_OUTPUT_EXISTING : PTO_TAG_INPUT;
  tensor.reserved[0] = tensor.reserved[1] = 0;
  pto_logged_task row{};
  row.id = -2 - static_cast<int64_t>(known.num_tasks);
  row.file = at.file;
  row.line = at.line;
  row.func_id = row.core_type = -1;
  row.traits = PTO_LOGGED_2026_08 | PTO_LOGGED_HOST;
  return log.add_access(tensor) && log.add_task(row);
}

}  // namespace

Shortage Orchestrator::create(const Options& options) {
  run_.sizes.options = options;
  Memory& memory = run_.context.memory;
  if (!kernels_.create(memory)) return {"the table of kernels"};
  if (!run_.scopes.create(memory)) return {"the scopes"};
  const Shortage of_rings = run_.rings.create(memory, options);
  if (of_rings.what != nullptr) return of_rings;
  const Shortage of_current = current_.create();
  if (of_current.what != nullptr) return of_current;
  return run_.space.create(memory, options);
}

void Orchestrator::destroy() {
  run_.log.destroy();
  run_.space.destroy();
  current_.destroy();
  run_.rings.destroy(run_.context.memory);
  run_.scopes.destroy();
  kernels_.destroy();
}

void Orchestrator::begin(const pto_run& run) {
  run_.is_full = run.hazards == PTO_HAZARDS_FULL;
  run_.log.begin(run.config);
  run_.sizes.blocks = run_.context.platform->topology->blocks;
  run_.rings.begin();
  kernels_.clear();
  run_.space.begin(run_.sizes.options, run_.is_full);
  run_.stream.begin();
  current_.begin();
  publisher_.begin();
  submitter_.begin();
  wait_.begin();
  deadlock_.clear();
  run_.statistics = {};
  run_.scopes.restart();
  run_.scopes.begin(nullptr, 0);
  run_.clusters.begin(run_.sizes.blocks);
  is_closed_ = false;
}

int32_t Orchestrator::wait_for_tensor(const pto_tensor_data& tensor, bool for_write, CallSite at) {
  if (run_.has_failed()) return current_.is_planning() ? 1 : -1;
  if (tensor.owner != kNoTask && !submitter_.is_scope_open(tensor.owner)) {
    run_.context.fail_at(at.file, at.line, {PTO_ERROR_USAGE, -1, tensor.owner},
                         "the data of a tensor is accessed whose buffer has been freed: ",
                         RingTaskName{tensor.owner},
                         " allocated it in a scope that has ended; access it in that scope");
    return -1;
  }
  publisher_.publish();
  run_.log_if_on(
      [&](engine::AccessLog& log) { return log_host_access(log, tensor, for_write, at); });
  return TensorWait(run_, current_.edges(), wait_).wait(tensor, for_write, at) ? 0 : -1;
}

int64_t Orchestrator::reject_submit(const pto_tensor_task& task) {
  const uint32_t ring = Scopes::ring_at(run_.scopes.depth());
  ErrorFacts facts{PTO_ERROR_USAGE};
  facts.task = TaskId{ring, run_.rings.ring[ring].next}.value();
  facts.func_id = task.func_id;
  run_.context.fail_at(
      task.file, task.line, facts, "function ", task.func_id,
      " was submitted after orchestration_done; submit all tasks before that call");
  return -1;
}

pto_status Orchestrator::add_dep(int64_t from, int64_t to, CallSite at) {
  if (!run_.has_failed() && publisher_.add_dep(from, to, at)) {
    log_event(PTO_LOG_EDGE, from, to, at);
  }
  return status();
}

pto_status Orchestrator::scope_begin(const char* file, int32_t line) {
  if (run_.has_failed()) return status();
  if (!run_.scopes.begin(file, line)) {
    run_.context.fail_at(file, line, {PTO_ERROR_MEMORY}, "no memory for a scope of depth ",
                         run_.scopes.open(), "; nest fewer scopes");
    return status();
  }
  const uint32_t ring = run_.scopes.innermost().ring;
  ++run_.statistics.ring[ring].scopes;
  pto_record(run_.context.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_SCOPE_BEGIN,
             run_.scopes.depth(), ring);
  log_event(PTO_LOG_SCOPE_BEGIN, 0, 0, {file, line});
  return status();
}

pto_status Orchestrator::scope_end(CallSite at) {
  if (run_.has_failed()) return status();
  if (run_.scopes.open() == 1) {
    run_.context.fail_at(at.file, at.line, {PTO_ERROR_USAGE},
                         "a scope is ended but none is open; each scope_end needs its scope_begin");
    return status();
  }
  publisher_.publish();
  end_innermost_scope();
  log_event(PTO_LOG_SCOPE_END, 0, 0, at);
  return status();
}

void Orchestrator::end_innermost_scope() {
  const uint32_t depth = run_.scopes.depth();
  current_.call([&](auto& rings) { rings.end_scope(depth); });
  const uint32_t index = run_.scopes.end();
  pto_record(run_.context.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_SCOPE_END, depth, index);
  TaskRing& ring = run_.rings.ring[index];
  const int64_t released = run_.scopes.released(index, ring.next);
  if (released == ring.scope_released.load(std::memory_order_relaxed)) return;
  // The store is seq_cst, like the store of `submitted`, so that a scheduler that becomes idle sees
  // it. No scheduler is woken here: if the orchestrator waits later, the wait calls published().
  ring.scope_released.store(released, std::memory_order_seq_cst);
  current_.history().release(index);
  current_.call([&](auto& rings) { rings.released(index); });
}

int32_t Orchestrator::allocate_cluster(const char* file, int32_t line) {
  if (run_.has_failed()) return Clusters::kNone;
  publisher_.publish();
  const uint32_t depth = run_.scopes.depth();
  int32_t cluster = Clusters::kNone;
  current_.take([&](auto& rings) { return rings.allocate_cluster(depth, {file, line}, &cluster); });
  if (run_.clusters.is_allocated(cluster)) {
    log_event(PTO_LOG_CLUSTER, run_.clusters.group(cluster), 0, {file, line});
  }
  return cluster;
}

pto_status Orchestrator::free_cluster(int32_t cluster, CallSite at) {
  if (run_.has_failed()) return status();
  if (current_.call([&](auto& rings) { return rings.is_cluster_allocated(cluster); })) {
    publisher_.publish();
    if (run_.clusters.is_allocated(cluster)) {
      log_event(PTO_LOG_CLUSTER_FREED, run_.clusters.group(cluster), 0, at);
    }
    current_.call([&](auto& rings) { rings.free_cluster(cluster); });
    return PTO_OK;
  }
  ErrorFacts facts{PTO_ERROR_USAGE};
  facts.value = static_cast<uint64_t>(static_cast<int64_t>(cluster));
  facts.limit = run_.clusters.blocks();
  run_.context.fail_at(at.file, at.line, facts, "cluster ", cluster,
                       " is freed, but it is not allocated; free each result of "
                       "allocate_cluster once, before its scope ends");
  return status();
}

void Orchestrator::log_event(uint32_t kind, int64_t first, int64_t second, CallSite at) {
  run_.log_if_on(
      [&](engine::AccessLog& log) { return log.add_event(kind, first, second, at.file, at.line); });
}

void Orchestrator::fail(pto_status status, const char* what, const char* file, int32_t line) {
  if (!run_.has_failed()) run_.context.fail_at(file, line, {status}, what);
}

void Orchestrator::close(CallSite at) {
  if (run_.has_failed()) return;
  if (is_closed_) {
    return fail(PTO_ERROR_USAGE,
                "orchestration_done was called a second time; call it at most once", at.file,
                at.line);
  }
  publisher_.publish();
  is_closed_ = true;
}

void Orchestrator::done(bool is_whole) {
  if (!run_.has_failed()) publisher_.publish();
  if (current_.is_planning()) {
    current_.finish(is_whole && !run_.has_failed());
  } else {
    while (!run_.has_failed() && run_.scopes.open() > 0) end_innermost_scope();
  }
  run_.scheduler.build_done();
}

}  // namespace pto::ring_buffer
