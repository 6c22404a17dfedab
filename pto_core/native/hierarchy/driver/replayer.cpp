#include "driver/replayer.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace pto::hierarchy {
namespace {

constexpr uint32_t kTasksAPoll = 32;

bool is_allocated(const CapturedKey& key) {
  return key.tensor.tag == Tag::kOutput && key.tensor.address == 0;
}

}  // namespace

// Return the number of bytes that a step reserves in its heap ring, rounded up to slabs.
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

bool Replayer::is_granted(const CapturedGraph& graph, const CapturedStep& step) const {
  const uint64_t bytes = bytes_to_reserve(graph, step);
  return bytes == 0 || submitter_.grant_for(bytes).bytes == 0;
}

size_t Replayer::make_steps(CapturedGraph& graph, size_t at, size_t stop, bool is_known) {
  const std::vector<CapturedStep>& steps = graph.steps;
  while (at < stop && is_granted(graph, steps[at]) && try_step(graph, steps[at], is_known)) ++at;
  return at;
}

bool Replayer::try_step(CapturedGraph& graph, const CapturedStep& step, bool is_known) {
  core_.check_open();
  if (core_.replayed.get() != &graph)
    throw Refusal(Refusal::Kind::kUsage, "another thread has ended the run of this replay");
  switch (step.what) {
    case CapturedStep::What::kScopeBegin:
      submitter_.scope_begin();
      return true;
    case CapturedStep::What::kScopeEnd:
      submitter_.scope_end();
      return true;
    case CapturedStep::What::kAllocate:
      return try_allocate(graph, step);
    default:
      return try_resubmit(graph, graph.tasks[step.task], is_known);
  }
}

bool Replayer::try_allocate(CapturedGraph& graph, const CapturedStep& step) {
  uint64_t address = 0;
  if (submitter_.try_allocate(step.bytes, &address) == kNone) return false;
  graph.locate(step.base, address);
  return true;
}

bool Replayer::try_resubmit(CapturedGraph& graph, const CapturedTask& task, bool is_known) {
  std::vector<SavedRange> ranges;
  const bool needs_keys = task.needs_keys || !is_known;
  if (needs_keys) fill_keys(graph, task);
  const uint64_t saved = task.retries > 0 && needs_keys ? ranges_of(task, &ranges) : 0;
  if (!core_.regions.fits(saved)) return false;
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
  const uint64_t begin = core_.tracer.is_on() ? trace_clock() : 0;
  const Submitted answer = core_.engine->submit(submission, core_.out);
  if (answer.task == kNone) {
    submitter_.throw_if_stuck();
    return false;
  }
  if (saved > 0) core_.regions.reserve(answer.task, std::move(ranges), saved);
  keep(graph, task, answer.task);
  if (begin != 0) [[unlikely]]
    trace(graph, task, answer.task, begin);
  submitter_.note_submitted(answer.task);
  if (!core_.out.empty()) exchange_.process();
  if (submitter_.is_poll_due(task.kind, kTasksAPoll)) exchange_.poll_and_dispatch();
  return true;
}

void Replayer::trace(CapturedGraph& graph, const CapturedTask& task, int64_t number,
                     uint64_t begin) {
  submitter_.trace_submit(begin, number, task.callable, task.place);
  if (!submitter_.traces_arguments()) return;
  for (uint32_t i = task.first_key; i < task.first_key + task.keys; ++i) {
    const CapturedKey& key = graph.keys[i];
    const std::byte* at = graph.blobs() + key.place - offsetof(pto_tensor, data);
    const auto& tensor = *reinterpret_cast<const pto_tensor*>(at);
    submitter_.trace_argument(begin, number, key.member, tensor, key.tensor.tag, tensor.data,
                              is_allocated(key));
  }
}

// Return the task numbers of the explicit producers of the next task.
std::span<const int64_t> Replayer::explicit_producers(std::span<const Known::Producer> producers) {
  after_.clear();
  for (const Known::Producer& each : producers)
    if ((each.why & kExplicit) != 0) after_.push_back(core_.book.next_task() - each.distance);
  return after_;
}

// Fill `keys_` with the tensors of the task at their current addresses.
void Replayer::fill_keys(const CapturedGraph& graph, const CapturedTask& task) {
  keys_.clear();
  for (uint32_t i = 0; i < task.keys; ++i) {
    const CapturedKey& key = graph.keys[task.first_key + i];
    keys_.push_back(key.tensor);
    if (key.base != kNoBase && !is_allocated(key))
      keys_.back().address = graph.bases[key.base] + key.offset;
  }
}

void Replayer::fill_members(const CapturedGraph& graph, const CapturedTask& task, bool has_keys) {
  members_.assign(task.members, Member{});
  Tensor* first = keys_.data();
  for (uint32_t i = 0; has_keys && i < task.keys; ++i) {
    Member& member = members_[graph.keys[task.first_key + i].member];
    if (member.tensors.empty()) member.tensors = {first + i, 0};
    member.tensors = {member.tensors.data(), member.tensors.size() + 1};
  }
}

uint64_t Replayer::ranges_of(const CapturedTask& task, std::vector<SavedRange>* ranges) const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < task.keys; ++i) {
    if (keys_[i].tag != Tag::kInout || keys_[i].bytes == 0) continue;
    ranges->push_back({keys_[i].address, keys_[i].bytes});
    bytes += keys_[i].bytes;
  }
  return bytes;
}

void Replayer::keep(CapturedGraph& graph, const CapturedTask& task, int64_t number) {
  TaskRecord& record = core_.book.records.append(number, 0);
  record.blobs = graph.blobs() + task.blobs;
  record.callable = task.callable;
  record.config = task.config;
  record.timeout_ms = task.timeout_ms;
  record.place = task.place;
  record.members = task.members;
  if (task.has_arguments) record.flags |= TaskRecord::kHasArguments;
  if (graph.states_use) record.flags |= TaskRecord::kHasUses;
  if (task.timeout_ms > 0) core_.flags.timeouts += 1;
  for (uint32_t i = 0; task.needs_keys && i < task.keys; ++i) {
    const CapturedKey& key = graph.keys[task.first_key + i];
    if (!is_allocated(key)) continue;
    graph.locate(key.base, keys_[i].address);
    if (key.tensor.bytes > 0) submitter_.note_allocated(keys_[i].address, key.tensor.bytes);
  }
}

}  // namespace pto::hierarchy
