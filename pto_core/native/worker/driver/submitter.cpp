#include "driver/submitter.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "arguments/blob.hpp"
#include "pto/abi/dtype.h"
#include "pto/engine/bell.hpp"

namespace pto::worker {
namespace {

// The number of submits after which the driver polls its children; a quarter of the largest window.
constexpr uint32_t kBatchedSubmitsPerPoll = 64;
// The number of submits after which the clock is read, to call the host at least every 50 ms even
// if the program only submits.
constexpr uint32_t kSubmitsPerClockRead = 32;

size_t bytes_of(const Member& member) {
  return blob_bytes(member.tensors.size(), member.scalars.size());
}

// Write the uses of the tensors. Return the end of the written bytes. Not inlined, because few
// Workers have children that receive uses.
[[gnu::noinline]] std::byte* append_uses(const Member& member, std::byte* to) {
  for (size_t i = 0; i < member.tensors.size(); ++i)
    to[i] = use_of(member.tensors[i].tag, member.arguments[i].data != member.tensors[i].address);
  return to + use_bytes(member.tensors.size());
}

// Add the memory of a tensor: one range, or one for each row of its box.
void add_ranges(const TensorAccess& tensor, std::vector<SavedRange>* ranges) {
  if (tensor.box == nullptr) return ranges->push_back({tensor.address, tensor.bytes});
  const Box& box = *tensor.box;
  const uint64_t row = box.extent[0] * box.element_bytes;
  uint64_t at[kMaxDims] = {};  // the position of the row in the box
  for (uint64_t left = tensor.bytes / row; left > 0; --left) {
    uint64_t address = tensor.address;
    uint64_t stride = box.raw[0] * box.element_bytes;
    for (uint32_t dim = 1; dim < box.dims; stride *= box.raw[dim++]) address += at[dim] * stride;
    ranges->push_back({address, row});
    for (uint32_t dim = 1; dim < box.dims && ++at[dim] == box.extent[dim]; ++dim) at[dim] = 0;
  }
}

}  // namespace

uint64_t bytes_to_allocate(const Submission& submission) {
  uint64_t bytes = 0;
  for (const Member& member : submission.members)
    for (const TensorAccess& tensor : member.tensors)
      if (is_allocated(tensor)) bytes += rounded(tensor.bytes);
  return bytes;
}

// Throw if a frame of the task is too large for the queue of a child.
void Submitter::check_sizes(const Submission& submission) const {
  for (const auto& link : core_.links) {
    if (link->configuration.kind != submission.kind || !link->is_attached()) continue;
    for (const Member& member : submission.members) {
      const size_t bytes = sizeof(pto_frame) + bytes_of(member);
      if (bytes <= link->largest_frame_bytes()) continue;
      throw Refusal(Refusal::Kind::kCapacity,
                    "the arguments of a task make a frame of " + std::to_string(bytes) +
                        " bytes, but the child's queue accepts frames of at most " +
                        std::to_string(link->largest_frame_bytes()) +
                        "; pass fewer arguments, or set a larger child_queue_bytes");
    }
  }
}

// Return the size of the regions that the task changes in place and that may be restored.
uint64_t Submitter::find_regions(const Submission& submission,
                                 std::vector<SavedRange>* ranges) const {
  uint64_t bytes = 0;
  for (const Member& member : submission.members) {
    for (size_t i = 0; i < member.tensors.size(); ++i) {
      const TensorAccess& tensor = member.tensors[i];
      if (tensor.tag != Tag::kInout || tensor.bytes == 0) continue;
      if (member.arguments[i].child_memory) {
        throw Refusal(
            Refusal::Kind::kUsage,
            "a task with retries changes memory of its child in place, but that memory cannot be "
            "saved and restored; use OUTPUT, or no retries");
      }
      add_ranges(tensor, ranges);
      bytes += tensor.bytes;
    }
  }
  if (core_.regions.fits_ever(bytes)) return bytes;
  throw Refusal(Refusal::Kind::kCapacity,
                "a task with retries changes " + std::to_string(bytes) +
                    " bytes in place, but copies of at most " +
                    std::to_string(core_.regions.limit_bytes()) +
                    " bytes are kept; set a larger snapshot_limit, or no retries");
}

void Submitter::check(const Submission& submission) const {
  check_sizes(submission);
  std::vector<SavedRange> ranges;
  if (submission.retries > 0) find_regions(submission, &ranges);
}

Submitter::Grant Submitter::grant_for(uint64_t bytes, RunOutcomes* run) const {
  const uint32_t ring = std::min(core_.open_run(run).depth, kRings - 1);
  const uint64_t size = core_.configuration.engine.rings[ring].size;
  const uint64_t needed = std::min(size, high_water_[ring] + bytes);
  return {ring, needed <= granted_[ring] ? 0 : needed};
}

void Submitter::note_granted(uint32_t ring, uint64_t bytes) {
  granted_[ring] = std::max(granted_[ring], bytes);
}

void Submitter::note_allocated(uint64_t address, uint64_t bytes) {
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    const RingConfiguration& its = core_.configuration.engine.rings[ring];
    if (address - its.address < its.size)
      high_water_[ring] = std::max(high_water_[ring], address - its.address + rounded(bytes));
  }
}

void Submitter::throw_if_stuck(uint32_t run) const {
  Deadlock proof;
  if (core_.engine->deadlock(&proof, run)) throw DeadlockFound{proof};
}

int64_t Submitter::try_submit(const Submission& submission, uint32_t submits_per_poll) {
  RunOutcomes& run = core_.open_run(submission.outcomes);
  check_sizes(submission);
  std::vector<SavedRange> ranges;
  const uint64_t saved = submission.retries > 0 ? find_regions(submission, &ranges) : 0;
  if (!core_.regions.fits(saved)) return kNone;
  const uint64_t begin = core_.tracer.is_on() ? trace_clock() : 0;
  const Submitted answer = core_.engine->submit(submission, core_.out);
  if (answer.task == kNone) {
    throw_if_stuck(submission.run);
    return kNone;
  }
  keep(submission, answer.task);
  if (saved > 0) core_.regions.reserve(answer.task, std::move(ranges), saved);
  if (begin != 0) [[unlikely]]
    trace_call(begin, answer.task, submission);
  note_submitted(answer.task, run);
  exchange_.process();
  if (++since_clock_ >= kSubmitsPerClockRead) {
    since_clock_ = 0;
    note_if_host_call_due(core_.flags);
  }
  if (is_poll_due(submission.kind, submits_per_poll)) exchange_.poll_and_dispatch();
  return answer.task;
}

int64_t Submitter::try_submit_each(const Submission& submission, int64_t at, int64_t stop,
                                   const std::function<void(int64_t)>& prepare, TaskRange& made) {
  for (; at < stop; ++at) {
    prepare(at);
    if (bytes_to_allocate(submission) > 0) break;
    const int64_t task = try_submit(submission, kBatchedSubmitsPerPoll);
    if (task == kNone) break;
    made.add(task);
  }
  return at;
}

void Submitter::keep(const Submission& submission, int64_t task) {
  size_t bytes = 0;
  if (submission.has_arguments)
    for (const Member& member : submission.members)
      bytes += bytes_of(member) + (states_use_ ? use_bytes(member.tensors.size()) : 0);
  SentTask& record = core_.book.records.append(task, bytes);
  record.callable = submission.callable;
  record.config = submission.config;
  record.timeout_ms = submission.timeout_ms;
  record.place = submission.place;
  record.members = static_cast<uint16_t>(submission.members.size());
  record.run = static_cast<uint8_t>(submission.run);
  if (submission.timeout_ms > 0) core_.flags.timeouts += 1;
  if (!submission.has_arguments) return;
  record.flags |= SentTask::kHasArguments;
  if (submission.has_kinds) record.flags |= SentTask::kHasKinds;
  if (states_use_) record.flags |= SentTask::kHasUses;
  std::byte* to = record.blobs;
  for (const Member& member : submission.members) {
    encode_blob({member.arguments, member.scalars}, to);
    auto* arguments = reinterpret_cast<pto_tensor*>(to + kBlobHeadBytes);
    for (size_t i = 0; i < member.tensors.size(); ++i) {
      const TensorAccess& tensor = member.tensors[i];
      if (arguments[i].data == tensor.address) continue;
      arguments[i].data = tensor.address;
      if (tensor.bytes > 0) note_allocated(tensor.address, tensor.bytes);
    }
    to += bytes_of(member);
    if (states_use_) to = append_uses(member, to);
  }
}

// Poll earlier if a child is idle: it must not wait until this many submits have been made.
bool Submitter::is_poll_due(Kind kind, uint32_t submits) {
  bool is_due = ++since_poll_ >= submits;
  for (size_t i = 0; i < core_.links.size() && !is_due; ++i) {
    const ChildLink& link = *core_.links[i];
    is_due = link.presence.is_ready && link.in_flight() == 0 && link.configuration.kind == kind;
  }
  if (is_due) since_poll_ = 0;
  return is_due;
}

int64_t Submitter::try_allocate(uint64_t bytes, uint64_t* address, RunOutcomes* run) {
  const uint32_t number = core_.open_run(run).number;
  const Submitted answer = core_.engine->allocate(bytes, address, core_.out, number);
  if (answer.task == kNone) {
    throw_if_stuck(number);
    return kNone;
  }
  if (bytes > 0) note_allocated(*address, bytes);
  if (bytes > 0 && traces_arguments()) trace_allocation(answer.task, bytes, *address);
  core_.book.note_submitted(answer.task);
  exchange_.process();
  return answer.task;
}

void Submitter::restart() {
  for (uint64_t& bytes : high_water_) bytes = 0;
}

void Submitter::scope_begin(RunOutcomes* run) {
  RunOutcomes& its = core_.open_run(run);
  core_.engine->scope_begin(its.number);
  its.depth += 1;
  trace_scope(PTO_TRACE_SCOPE_BEGIN, its.depth);
}

void Submitter::scope_end(RunOutcomes* run) {
  RunOutcomes& its = core_.open_run(run);
  core_.engine->scope_end(core_.out, its.number);
  trace_scope(PTO_TRACE_SCOPE_END, its.depth);
  its.depth -= 1;
  exchange_.process();
  exchange_.wake_waiting();
}

void Submitter::trace_submit(uint64_t begin, int64_t task, uint32_t callable,
                             const SubmitPosition& place) {
  core_.tracer.add_at(begin, kOrchestratorTrack, PTO_TRACE_SUBMIT, static_cast<uint64_t>(task),
                      submit_word(callable, place.code, static_cast<uint32_t>(place.instruction)));
}

void Submitter::trace_call(uint64_t begin, int64_t task, const Submission& submission) {
  trace_submit(begin, task, submission.callable, submission.place);
  if (!traces_arguments()) return;
  for (size_t index = 0; index < submission.members.size(); ++index) {
    const Member& member = submission.members[index];
    for (size_t i = 0; i < member.tensors.size(); ++i) {
      const TensorAccess& tensor = member.tensors[i];
      trace_argument(begin, task, static_cast<uint32_t>(index), member.arguments[i], tensor.tag,
                     tensor.address, member.arguments[i].data != tensor.address);
    }
  }
}

void Submitter::trace_argument(uint64_t begin, int64_t task, uint32_t member,
                               const pto_tensor& tensor, Tag tag, uint64_t address,
                               bool is_allocated) {
  ArgumentKind kind;
  const uint32_t ndims = std::min<uint32_t>(tensor.ndims, PTO_MAX_DIMS);
  std::copy_n(tensor.shapes, ndims, kind.shapes);
  kind.member = static_cast<uint16_t>(member);
  kind.ndims = static_cast<uint8_t>(ndims);
  kind.dtype = tensor.dtype;
  kind.tag = static_cast<uint8_t>(tag);
  kind.is_allocated = is_allocated ? 1 : 0;
  kind.child_memory = tensor.child_memory;
  core_.tracer.argument(begin, task, kind, address);
}

// Record memory that the program allocated without a task: its length in slabs of the ring.
void Submitter::trace_allocation(int64_t task, uint64_t bytes, uint64_t address) {
  ArgumentKind kind;
  kind.shapes[0] = static_cast<uint32_t>(rounded(bytes) / kSlabBytes);
  kind.shapes[1] = static_cast<uint32_t>(kSlabBytes);
  kind.ndims = 2;
  kind.dtype = PTO_DTYPE_UINT8;
  kind.tag = static_cast<uint8_t>(Tag::kOutput);
  kind.is_allocated = 1;
  core_.tracer.argument(trace_clock(), task, kind, address);
}

void Submitter::trace_scope(uint16_t event, uint32_t depth) {
  if (core_.tracer.records(PTO_TRACE_PHASES))
    core_.tracer.add(kOrchestratorTrack, event, depth, std::min(depth, kRings - 1));
}

void Submitter::end_scopes(RunOutcomes& run) {
  while (run.depth > 0) scope_end(&run);
}

uint64_t longest_slice_ns(const SharedFlags& flags) {
  constexpr uint64_t kSliceNs = 50'000'000;
  return flags.returning > 0 ? kSliceNs / 10 : kSliceNs;
}

void note_if_host_call_due(SharedFlags& flags) {
  flags.is_host_call_due =
      engine::monotonic_ns() - flags.last_host_call_ns >= longest_slice_ns(flags);
}

namespace {

constexpr uint32_t kTasksPerPoll = 32;

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
  return bytes == 0 || submitter_.grant_for(bytes, nullptr).bytes == 0;
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
  submission.run = core_.book.outcomes()->number;
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
    submitter_.throw_if_stuck(submission.run);
    return false;
  }
  if (saved > 0) core_.regions.reserve(answer.task, std::move(ranges), saved);
  keep(graph, task, answer.task);
  if (begin != 0) [[unlikely]]
    trace(graph, task, answer.task, begin);
  submitter_.note_submitted(answer.task, *core_.book.outcomes());
  if (!core_.out.empty()) exchange_.process();
  if (submitter_.is_poll_due(task.kind, kTasksPerPoll)) exchange_.poll_and_dispatch();
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
  boxes_.clear();
  for (uint32_t i = 0; i < task.keys; ++i) {
    const CapturedKey& key = graph.keys[task.first_key + i];
    keys_.push_back(key.tensor);
    if (key.base == kNoBase || is_allocated(key)) continue;
    TensorAccess& tensor = keys_.back();
    tensor.address = graph.bases[key.base] + key.offset;
    if (tensor.box == nullptr) continue;
    boxes_.push_back(*tensor.box);
    boxes_.back().base += tensor.address - key.tensor.address;
    tensor.box = &boxes_.back();
  }
}

void Replayer::fill_members(const CapturedGraph& graph, const CapturedTask& task, bool has_keys) {
  members_.assign(task.members, Member{});
  TensorAccess* first = keys_.data();
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
    add_ranges(keys_[i], ranges);
    bytes += keys_[i].bytes;
  }
  return bytes;
}

void Replayer::keep(CapturedGraph& graph, const CapturedTask& task, int64_t number) {
  SentTask& record = core_.book.records.append(number, 0);
  record.blobs = graph.blobs() + task.blobs;
  record.run = static_cast<uint8_t>(core_.book.outcomes()->number);
  record.callable = task.callable;
  record.config = task.config;
  record.timeout_ms = task.timeout_ms;
  record.place = task.place;
  record.members = task.members;
  if (task.has_arguments) record.flags |= SentTask::kHasArguments;
  if (task.has_kinds) record.flags |= SentTask::kHasKinds;
  if (graph.states_use) record.flags |= SentTask::kHasUses;
  if (task.timeout_ms > 0) core_.flags.timeouts += 1;
  for (uint32_t i = 0; task.needs_keys && i < task.keys; ++i) {
    const CapturedKey& key = graph.keys[task.first_key + i];
    if (!is_allocated(key)) continue;
    graph.locate(key.base, keys_[i].address);
    if (key.tensor.bytes > 0) submitter_.note_allocated(keys_[i].address, key.tensor.bytes);
  }
}

}  // namespace pto::worker
