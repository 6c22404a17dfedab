#include "remote/parent_port.hpp"

#include <algorithm>
#include <cstring>

#include "engine/interface.hpp"

namespace pto::hierarchy {
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

}  // namespace pto::hierarchy
