#include "remote/ports.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "child/child_end.hpp"
#include "engine/interface.hpp"
#include "remote/packed_tasks.hpp"

namespace pto::worker {
ChildPort::ChildPort(const pto_transport_api& api, pto_child_end* end,
                     const ProgressTable& progress, int32_t child)
    : api_(api),
      end_(end),
      progress_(progress),
      child_(child),
      base_(progress.child(child).completed.load(std::memory_order_relaxed)),
      count_(base_) {
  progress.child(child).pid.store(static_cast<uint32_t>(getpid()), std::memory_order_release);
}

std::vector<ReceivedFrame> ChildPort::receive(int32_t most) {
  pto_frame_view views[kPortBatch];
  const int32_t count = checked(api_.receive(end_, views, std::min(most, kPortBatch)));
  std::vector<ReceivedFrame> frames;
  frames.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    const pto_frame& head = *views[i].frame;
    const bool is_task = head.kind == PTO_FRAME_TASK;
    if (is_task) count_ += 1;
    std::string data(static_cast<const char*>(views[i].data), head.bytes);
    frames.push_back({head, is_task ? count_ : 0, std::move(data)});
  }
  if (count > 0) api_.take(end_, count);
  return frames;
}

ReceivedTasks ChildPort::receive_plain(int32_t most) {
  pto_frame_view views[kPortBatch];
  const int32_t limit = std::min(most, kPortBatch);
  const int32_t count = checked(api_.receive(end_, views, limit));
  ReceivedTasks tasks{count_ + 1, 0, {}, false};
  for (int32_t i = 0; i < count; ++i) {
    const pto_frame& head = *views[i].frame;
    const std::string_view arguments(static_cast<const char*>(views[i].data), head.bytes);
    const bool is_plain = head.kind == PTO_FRAME_TASK && head.required_count == 0;
    if (!is_plain || !has_no_tensors(arguments)) break;
    pack_task(head, arguments, tasks.packed);
    tasks.count += 1;
  }
  count_ += tasks.count;
  tasks.has_more = tasks.count < static_cast<uint64_t>(count) || count == limit;
  if (tasks.count > 0) api_.take(end_, static_cast<int32_t>(tasks.count));
  return tasks;
}

Requirement ChildPort::requirement(uint64_t count, int32_t required_child,
                                   uint64_t required_count) const {
  if (required_child < 0 || required_child >= static_cast<int32_t>(progress_.children()))
    throw Refusal(Refusal::Kind::kProtocol, "a task requires a frame of child " +
                                                std::to_string(required_child) + " of " +
                                                std::to_string(progress_.children()));
  const auto judge = [&] {
    return progress_.requirement(child_, count, required_child, required_count);
  };
  const Requirement found = judge();
  if (found != Requirement::kPending) return found;
  progress_.want_ring(child_, required_child);
  return judge();  // check again: the frame may have completed before want_ring
}

uint64_t ChildPort::completed() const {
  return progress_.child(child_).completed.load(std::memory_order_relaxed);
}

void ChildPort::left(uint64_t count) const {
  progress_.pass_on(child_, count);
}

void ChildPort::started(uint64_t count, uint64_t age_ns) const {
  if (count <= progress_.child(child_).started.load(std::memory_order_relaxed)) return;
  const uint64_t now_ns = engine::monotonic_ns();
  progress_.start_elsewhere(child_, count, now_ns - std::min(age_ns, now_ns));
}

bool ChildPort::answer(uint64_t count, uint16_t outcome, const std::string& data) const {
  return try_answer({count - base_, data.empty() ? nullptr : data.data(),
                     static_cast<uint32_t>(data.size()), PTO_ANSWER_COMPLETED, outcome});
}

bool ChildPort::reply(uint64_t number, const std::string& data) const {
  return try_answer({number, data.empty() ? nullptr : data.data(),
                     static_cast<uint32_t>(data.size()), PTO_ANSWER_REPLY, PTO_OUTCOME_SUCCEEDED});
}

void ChildPort::close() {
  if (end_) api_.close_child(end_);
  end_ = nullptr;
}

bool ChildPort::try_answer(const pto_answer& answer) const {
  return checked(api_.answer(end_, &answer)) != 0;
}

int32_t ChildPort::checked(int32_t result) const {
  if (result >= 0) return result;
  if (result == PTO_ENDPOINT_CLOSED) throw ParentClosed();
  throw Refusal(Refusal::Kind::kProtocol,
                "transport " + std::string(api_.name) + ": " + api_.child_error(end_));
}

namespace {

pto_frame frame_of(const TaskHead& task) {
  pto_frame frame{};
  std::memcpy(frame.callable, task.callable, sizeof frame.callable);
  frame.required_child = task.required == 0 ? -1 : 0;
  frame.required_count = task.required;
  frame.config = task.config;
  frame.number = task.task;
  frame.bytes = task.bytes;
  frame.kind = PTO_FRAME_TASK;
  frame.flags = task.flags;
  return frame;
}

}  // namespace

bool ParentPort::submit(const pto_frame& head, const std::string& data) {
  const pto_frame_view view{&head, data.data()};
  return checked(api_.submit(end_, &view, 1)) == 1;
}

PlainTasks ParentPort::submit_plain(std::string_view packed) {
  PlainTasks sent;
  pto_frame heads[kPortBatch];
  pto_frame_view views[kPortBatch];
  while (true) {
    size_t size = sent.size;
    int32_t count = 0;
    PackedTask task;
    for (; count < kPortBatch && read_task(packed.substr(size), task); ++count) {
      heads[count] = frame_of(task.head);
      views[count] = {&heads[count], task.arguments};
      size += task.size;
    }
    if (count == 0) return sent;
    const int32_t accepted = checked(api_.submit(end_, views, count));
    for (int32_t i = 0; i < accepted; ++i) sent.size += sizeof(TaskHead) + heads[i].bytes;
    sent.count += static_cast<uint64_t>(accepted);
    if (accepted < count) return sent;
  }
}

std::vector<ReceivedAnswer> ParentPort::poll() {
  pto_answer answers[kPortBatch];
  std::vector<ReceivedAnswer> received;
  int32_t count = kPortBatch;
  while (count == kPortBatch) {
    count = checked(api_.poll(end_, answers, kPortBatch));
    for (int32_t i = 0; i < count; ++i) {
      const pto_answer& one = answers[i];
      std::string data(static_cast<const char*>(one.data), one.data ? one.bytes : 0);
      received.push_back({one.number, one.kind, one.outcome, std::move(data)});
    }
  }
  return received;
}

uint64_t ParentPort::succeeded(uint64_t count) const {
  const uint64_t last = completed();
  while (count < last && progress_.has_succeeded(0, count + 1)) count += 1;
  return count;
}

uint64_t ParentPort::started_age_ns() const {
  record().wants_clock.store(1, std::memory_order_relaxed);
  const uint64_t now_ns = engine::monotonic_ns();
  const uint64_t started_ns = record().started_ns.load(std::memory_order_relaxed);
  return started_ns == 0 ? 0 : now_ns - std::min(started_ns, now_ns);
}

void ParentPort::close() {
  if (end_) api_.close_parent(end_);
  end_ = nullptr;
}

int32_t ParentPort::checked(int32_t result) const {
  if (result >= 0) return result;
  if (result == PTO_ENDPOINT_CLOSED)
    throw Refusal(Refusal::Kind::kProtocol, "the child closed its end");
  throw Refusal(Refusal::Kind::kProtocol,
                "transport " + std::string(api_.name) + ": " + api_.parent_error(end_));
}

}  // namespace pto::worker
