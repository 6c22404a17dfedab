// The submits of a captured graph, made again without the program.
#include <algorithm>

#include "driver/captured_graph.hpp"
#include "driver/driver.hpp"
#include "driver/waiting.hpp"

namespace pto::hierarchy {
namespace {

constexpr uint32_t kTasksAPump = 32;

bool is_allocated(const CapturedKey& key) {
  return key.tensor.tag == Tag::kOutput && key.tensor.address == 0;
}

// To be reserved in a heap ring.
uint64_t bytes_to_reserve(const CapturedGraph& graph, const CapturedStep& step) {
  if (step.what == CapturedStep::What::kAllocate) return rounded(step.bytes);
  if (step.what != CapturedStep::What::kSubmit) return 0;
  const CapturedTask& task = graph.tasks[step.task];
  uint64_t bytes = 0;
  for (uint32_t i = 0; task.needs_keys && i < task.keys; ++i) {
    const CapturedKey& key = graph.keys[task.first_key + i];
    if (is_allocated(key)) bytes += rounded(key.tensor.bytes);
  }
  return bytes;
}

}  // namespace

// The run may end meanwhile, by another thread, and lets go of the graph then.
void Driver::replay(std::shared_ptr<CapturedGraph> graph, bool is_known) {
  constexpr size_t kStepsARole = 1024;
  {
    Role role(*this);
    replayed_ = graph;
    has_work_.store(true, std::memory_order_relaxed);
  }
  const std::vector<CapturedStep>& steps = graph->steps;
  for (size_t at = 0; at < steps.size();) {
    note_if_look_due();
    look_around_if_due();
    {
      Role role(*this);
      const size_t stop = std::min(steps.size(), at + kStepsARole);
      while (at < stop && is_granted(*graph, steps[at]) && try_step(*graph, steps[at], is_known))
        ++at;
      if (at == stop) continue;
    }
    ensure_granted(bytes_to_reserve(*graph, steps[at]));
    attempt_or_wait([&] { return try_step(*graph, steps[at], is_known); });
    at += 1;
  }
  background_.wake_if_asleep();
}

bool Driver::is_granted(const CapturedGraph& graph, const CapturedStep& step) const {
  const uint64_t bytes = bytes_to_reserve(graph, step);
  return bytes == 0 || is_granted(bytes);
}

bool Driver::try_step(CapturedGraph& graph, const CapturedStep& step, bool is_known) {
  check_open();
  if (replayed_.get() != &graph)
    throw Refusal(Refusal::Kind::kUsage, "the run of this replay was ended by another thread");
  switch (step.what) {
    case CapturedStep::What::kScopeBegin:
      engine_->scope_begin();
      scope_depth_ += 1;
      return true;
    case CapturedStep::What::kScopeEnd:
      engine_->scope_end(out_);
      scope_depth_ -= 1;
      process();
      return true;
    case CapturedStep::What::kAllocate:
      return try_allocate(graph, step);
    default:
      return try_resubmit(graph, graph.tasks[step.task], is_known);
  }
}

bool Driver::try_allocate(CapturedGraph& graph, const CapturedStep& step) {
  uint64_t address = 0;
  if (try_allocate(step.bytes, &address) == kNone) return false;
  graph.locate(step.base, address);
  return true;
}

bool Driver::try_resubmit(CapturedGraph& graph, const CapturedTask& task, bool is_known) {
  std::vector<SavedRange> ranges;
  const bool needs_keys = task.needs_keys || !is_known;
  if (needs_keys) fill_keys(graph, task);
  const uint64_t saved = task.retries > 0 && needs_keys ? ranges_of(task, &ranges) : 0;
  if (!regions_.fits(saved)) return false;
  Submission submission;
  submission.kind = task.kind;
  submission.is_hint = task.is_hint;
  submission.retries = task.retries;
  submission.timeout_ms = task.timeout_ms;
  submission.pins = {graph.pins.data() + task.first_pin, task.pins};
  fill_members(graph, task, needs_keys);
  submission.members = members_;
  const std::span producers(graph.producers.data() + task.first_producer, task.producers);
  const Known known{producers, {graph.owners.data() + task.first_owner, task.owners}};
  if (is_known)
    submission.known = &known;
  else
    submission.after = explicit_producers(producers);
  const Submitted answer = engine_->submit(submission, out_);
  if (answer.task == kNone) {
    Deadlock proof;
    if (is_stuck(&proof)) throw DeadlockFound{proof};
    return false;
  }
  if (saved > 0) regions_.reserve(answer.task, std::move(ranges), saved);
  keep(graph, task, answer.task);
  after_resubmit(answer.task);
  if (is_pump_due(task.kind, kTasksAPump)) pump();
  return true;
}

// The next task's producers that the program named.
std::span<const int64_t> Driver::explicit_producers(std::span<const Known::Producer> producers) {
  after_.clear();
  for (const Known::Producer& each : producers)
    if ((each.why & kExplicit) != 0) after_.push_back(newest_ + 1 - each.distance);
  return after_;
}

// The tensors of the task, where they lie now.
void Driver::fill_keys(const CapturedGraph& graph, const CapturedTask& task) {
  keys_.clear();
  for (uint32_t i = 0; i < task.keys; ++i) {
    const CapturedKey& key = graph.keys[task.first_key + i];
    keys_.push_back(key.tensor);
    if (key.base != kNoBase && !is_allocated(key))
      keys_.back().address = graph.bases[key.base] + key.offset;
  }
}

void Driver::fill_members(const CapturedGraph& graph, const CapturedTask& task, bool has_keys) {
  members_.assign(task.members, Member{});
  Tensor* first = keys_.data();
  for (uint32_t i = 0; has_keys && i < task.keys; ++i) {
    Member& member = members_[graph.keys[task.first_key + i].member];
    if (member.tensors.empty()) member.tensors = {first + i, 0};
    member.tensors = {member.tensors.data(), member.tensors.size() + 1};
  }
}

uint64_t Driver::ranges_of(const CapturedTask& task, std::vector<SavedRange>* ranges) const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < task.keys; ++i) {
    if (keys_[i].tag != Tag::kInout || keys_[i].bytes == 0) continue;
    ranges->push_back({keys_[i].address, keys_[i].bytes});
    bytes += keys_[i].bytes;
  }
  return bytes;
}

void Driver::keep(CapturedGraph& graph, const CapturedTask& task, int64_t number) {
  TaskRecord& record = records_.append(number, 0);
  record.blobs = graph.blobs() + task.blobs;
  record.callable = task.callable;
  record.config = task.config;
  record.timeout_ms = task.timeout_ms;
  record.place = task.place;
  record.members = task.members;
  if (task.has_arguments) record.flags |= TaskRecord::kHasArguments;
  if (task.timeout_ms > 0) timeouts_ += 1;
  for (uint32_t i = 0; task.needs_keys && i < task.keys; ++i) {
    const CapturedKey& key = graph.keys[task.first_key + i];
    if (!is_allocated(key)) continue;
    graph.locate(key.base, keys_[i].address);
    if (key.tensor.bytes > 0) note_allocated(keys_[i].address, key.tensor.bytes);
  }
}

void Driver::after_resubmit(int64_t task) {
  counts_.submitted += 1;
  newest_ = task;
  is_dirty_ = true;
  if (!out_.empty()) process();
}

}  // namespace pto::hierarchy
