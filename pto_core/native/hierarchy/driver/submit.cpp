// What the program adds to a run.
#include <algorithm>
#include <cstring>

#include "arguments/blob.hpp"
#include "driver/driver.hpp"
#include "driver/waiting.hpp"

namespace pto::hierarchy {
namespace {

constexpr uint32_t kSubmitsAPump = 8;
// Where the program does nothing in between; a quarter of the largest window.
constexpr uint32_t kSubmitsAPumpTogether = 64;
// Below 50 ms for a program that submits so often that the driver's own thread leaves it alone.
constexpr uint32_t kSubmitsAClock = 32;

bool is_allocated(const Tensor& key) {
  return key.tag == Tag::kOutput && key.address == 0 && key.bytes > 0;
}

uint64_t bytes_to_allocate(const Call& call) {
  uint64_t bytes = 0;
  for (const MemberCall& member : call.members)
    for (const Tensor& key : member.keys)
      if (is_allocated(key)) bytes += rounded(key.bytes);
  return bytes;
}

size_t bytes_of(const MemberCall& member) {
  return blob_bytes(member.tensors.size(), member.scalars.size());
}

}  // namespace

Submission submission_of(const Call& call, std::vector<Member>& members) {
  members.clear();
  for (const MemberCall& member : call.members) members.push_back({member.keys});
  Submission submission;
  submission.kind = call.kind;
  submission.is_hint = call.is_hint;
  submission.retries = call.retries;
  submission.timeout_ms = call.timeout_ms;
  submission.members = members;
  submission.pins = call.pins;
  submission.after = call.after;
  return submission;
}

// Throws where a frame of the task could never be sent.
void Driver::check_sizes(const Call& call) const {
  for (const auto& link : links_) {
    if (link->configuration.kind != call.kind || !link->is_attached()) continue;
    for (const MemberCall& member : call.members) {
      const size_t bytes = sizeof(pto_frame) + bytes_of(member);
      if (bytes <= link->largest_frame_bytes()) continue;
      throw Refusal(Refusal::Kind::kCapacity,
                    "the arguments of a task make a frame of " + std::to_string(bytes) +
                        " bytes, the child's queue takes frames up to " +
                        std::to_string(link->largest_frame_bytes()) +
                        "; pass fewer arguments, or set a larger child_queue_bytes");
    }
  }
}

// The bytes of what the task changes in place, which may have to be put back.
uint64_t Driver::find_regions(const Call& call, std::vector<SavedRange>* ranges) const {
  uint64_t bytes = 0;
  for (const MemberCall& member : call.members) {
    for (size_t i = 0; i < member.keys.size(); ++i) {
      const Tensor& key = member.keys[i];
      if (key.tag != Tag::kInout || key.bytes == 0) continue;
      if (member.tensors[i].child_memory) {
        throw Refusal(Refusal::Kind::kUsage,
                      "a task with retries changes memory of its child in place, which cannot be "
                      "saved and put back; use OUTPUT, or no retries");
      }
      ranges->push_back({key.address, key.bytes});
      bytes += key.bytes;
    }
  }
  if (regions_.fits_ever(bytes)) return bytes;
  throw Refusal(Refusal::Kind::kCapacity,
                "a task with retries changes " + std::to_string(bytes) +
                    " bytes in place, and copies of at most " +
                    std::to_string(regions_.limit_bytes()) +
                    " bytes are kept; set a larger snapshot_limit, or no retries");
}

void Driver::check(const Call& call) const {
  check_sizes(call);
  std::vector<SavedRange> ranges;
  if (call.retries > 0) find_regions(call, &ranges);
}

// Whether so much more of the scope's ring may be used.
bool Driver::is_granted(uint64_t bytes) const {
  const uint32_t ring = std::min(scope_depth_, kRings - 1);
  const uint64_t size = configuration_.engine.rings[ring].size;
  return std::min(size, high_water_[ring] + bytes) <= granted_[ring];
}

void Driver::ensure_granted(uint64_t bytes) {
  uint32_t ring = 0;
  uint64_t needed = 0;
  {
    Role role(*this);
    check_open();
    ring = std::min(scope_depth_, kRings - 1);
    needed = std::min(configuration_.engine.rings[ring].size, high_water_[ring] + bytes);
    if (needed <= granted_[ring]) return;
  }
  const uint64_t granted = host_.grant(ring, needed);
  Role role(*this);
  granted_[ring] = std::max(granted_[ring], granted);
}

void Driver::note_allocated(uint64_t address, uint64_t bytes) {
  const uint32_t ring = std::min(scope_depth_, kRings - 1);
  const uint64_t end = address - configuration_.engine.rings[ring].address + rounded(bytes);
  high_water_[ring] = std::max(high_water_[ring], end);
}

bool Driver::is_stuck(Deadlock* proof) const {
  return engine_->is_quiescent() && engine_->deadlock(proof);
}

int64_t Driver::submit(const Call& call) {
  look_around_if_due();
  const uint64_t allocated = bytes_to_allocate(call);
  if (allocated > 0) ensure_granted(allocated);
  int64_t task = kNone;
  attempt_or_wait([&] {
    task = try_submit(call, kSubmitsAPump);
    return task != kNone;
  });
  background_.wake_if_asleep();
  return task;
}

void Driver::submit_each(const Call& call, int64_t count,
                         const std::function<void(int64_t)>& prepare, TaskRange& made) {
  constexpr int64_t kTasksARole = 256;
  for (int64_t i = 0; i < count;) {
    int64_t task = kNone;
    look_around_if_due();
    {
      Role role(*this);
      const int64_t stop = std::min(count, i + kTasksARole);
      do {
        prepare(i);
        task = bytes_to_allocate(call) > 0 ? kNone : try_submit(call, kSubmitsAPumpTogether);
        if (task != kNone) made.add(task);
      } while (task != kNone && ++i < stop);
    }
    if (task != kNone) continue;
    made.add(submit(call));
    i += 1;
  }
  {
    Role role(*this);
    pump();
  }
  background_.wake_if_asleep();
}

int64_t Driver::try_submit(const Call& call, uint32_t submits_a_pump) {
  check_open();
  check_sizes(call);
  std::vector<SavedRange> ranges;
  const uint64_t saved = call.retries > 0 ? find_regions(call, &ranges) : 0;
  if (!regions_.fits(saved)) return kNone;
  const Submitted answer = engine_->submit(submission_of(call, members_), out_);
  if (answer.task == kNone) {
    Deadlock proof;
    if (is_stuck(&proof)) throw DeadlockFound{proof};
    return kNone;
  }
  keep(call, answer.task);
  if (saved > 0) regions_.reserve(answer.task, std::move(ranges), saved);
  after_submit(answer.task);
  if (is_pump_due(call.kind, submits_a_pump)) pump();
  return answer.task;
}

void Driver::keep(const Call& call, int64_t task) {
  size_t bytes = 0;
  if (call.has_arguments)
    for (const MemberCall& member : call.members) bytes += bytes_of(member);
  TaskRecord& record = records_.append(task, bytes);
  record.callable = call.callable;
  record.config = call.config;
  record.timeout_ms = call.timeout_ms;
  record.place = call.place;
  record.members = static_cast<uint16_t>(call.members.size());
  if (call.timeout_ms > 0) timeouts_ += 1;
  if (!call.has_arguments) return;
  record.flags |= TaskRecord::kHasArguments;
  std::byte* to = record.blobs;
  for (const MemberCall& member : call.members) {
    encode_blob({member.tensors, member.scalars}, to);
    auto* tensors = reinterpret_cast<pto_tensor*>(to + kBlobHeadBytes);
    for (size_t i = 0; i < member.keys.size(); ++i) {
      if (tensors[i].data == member.keys[i].address) continue;
      tensors[i].data = member.keys[i].address;
      if (member.keys[i].bytes > 0) note_allocated(tensors[i].data, member.keys[i].bytes);
    }
    to += bytes_of(member);
  }
}

void Driver::after_submit(int64_t task) {
  counts_.submitted += 1;
  newest_ = task;
  is_dirty_ = true;
  if (!has_work_.load(std::memory_order_relaxed)) has_work_ = true;
  process();
  if (++since_clock_ >= kSubmitsAClock) {
    since_clock_ = 0;
    note_if_look_due();
  }
}

// A child without work does not wait for so many submits.
bool Driver::is_pump_due(Kind kind, uint32_t submits) {
  since_pump_ += 1;
  bool is_due = since_pump_ >= submits;
  for (size_t i = 0; i < links_.size() && !is_due; ++i) {
    const ChildLink& link = *links_[i];
    is_due = link.is_ready && link.in_flight() == 0 && link.configuration.kind == kind;
  }
  return is_due;
}

int64_t Driver::allocate(uint64_t bytes, uint64_t* address) {
  if (bytes > 0) ensure_granted(rounded(bytes));
  int64_t task = kNone;
  attempt_or_wait([&] {
    task = try_allocate(bytes, address);
    return task != kNone;
  });
  return task;
}

int64_t Driver::try_allocate(uint64_t bytes, uint64_t* address) {
  check_open();
  const Submitted answer = engine_->allocate(bytes, address, out_);
  Deadlock proof;
  if (answer.task == kNone && is_stuck(&proof)) throw DeadlockFound{proof};
  if (answer.task == kNone) return kNone;
  if (bytes > 0) note_allocated(*address, bytes);
  newest_ = answer.task;
  process();
  return answer.task;
}

}  // namespace pto::hierarchy
