#include "driver/withdrawals.hpp"

#include <algorithm>

#include "pto/engine/bell.hpp"

namespace pto::worker {
namespace {

// A child that has run the same task for this long is slow compared with the cost of moving tasks.
constexpr uint64_t kSlowNs = 500'000;

}  // namespace

bool Withdrawals::cancel(int64_t task, int64_t cause) {
  if (core_.flags.is_closed) return false;
  for (size_t i = 0; i < core_.links.size(); ++i) {
    const auto child = static_cast<int32_t>(i);
    for (const uint64_t count : waiting_in(child))
      if (core_.link(child).frame(count).task == task) take_back(child, {count});
  }
  const bool is_cancelled = core_.engine->cancel_task(task, cause, core_.out);
  exchange_.process();
  exchange_.poll_and_dispatch();
  exchange_.wake_waiting();
  return is_cancelled;
}

void Withdrawals::withdraw_run(const RunOutcomes& run) {
  for (size_t i = 0; i < core_.links.size(); ++i) {
    const auto child = static_cast<int32_t>(i);
    std::vector<uint64_t> counts = waiting_in(child);
    std::erase_if(counts, [&](uint64_t count) {
      return core_.book.records.find(core_.link(child).frame(count).task)->run != run.number;
    });
    take_back(child, counts);
  }
}

std::vector<uint64_t> Withdrawals::waiting_in(int32_t child) const {
  std::vector<uint64_t> counts;
  if (keeps_frames(child)) return counts;
  const ChildLink& link = core_.link(child);
  const uint64_t started = core_.progress.child(child).started.load();
  for (uint64_t count = link.completed() + 1; count <= link.sent(); ++count) {
    const SentTask* record = core_.book.records.find(link.frame(count).task);
    if (count > started && record && record->members == 1) counts.push_back(count);
  }
  return counts;
}

void Withdrawals::take_back(int32_t child, const std::vector<uint64_t>& counts) {
  for (const uint64_t count : counts) {
    core_.engine->withdraw(child, count, core_.out);
    core_.progress.skip(child, count);
  }
  const uint64_t started = core_.progress.child(child).started.load();
  skip_followers(child, counts, started);
  for (const uint64_t count : counts) {
    if (count <= started) continue;
    if (core_.tracer.is_on())
      core_.tracer.add(kSchedulerTrack, kTraceWithdraw,
                       static_cast<uint64_t>(core_.link(child).frame(count).task),
                       frame_word(child, 0, count));
    core_.link(child).withdraw(count);
    core_.engine->withdrawn(child, count, core_.out);
    core_.is_dirty = true;
  }
  exchange_.process();
}

// Skip frames that were sent early and require one of these frames, which will not begin.
void Withdrawals::skip_followers(int32_t child, const std::vector<uint64_t>& counts,
                                 uint64_t started) {
  for (size_t i = 0; i < core_.links.size(); ++i) {
    const ChildLink& link = *core_.links[i];
    for (uint64_t each = link.completed() + 1; each <= link.sent(); ++each) {
      const QueuedFrame& frame = link.frame(each);
      if (frame.required_child == child && frame.required_count > started &&
          std::binary_search(counts.begin(), counts.end(), frame.required_count))
        core_.progress.skip(static_cast<int32_t>(i), each);
    }
  }
}

void Withdrawals::balance() {
  bool is_idle[2] = {};
  bool has_waiting = false;
  for (const auto& link : core_.links) {
    if (link->presence.is_ready && link->in_flight() == 0)
      is_idle[static_cast<uint8_t>(link->configuration.kind)] = true;
    has_waiting = has_waiting || link->in_flight() > 1;
  }
  bool is_unbalanced = false;
  if (has_waiting && (is_idle[0] || is_idle[1]) && core_.engine->can_tasks_move()) {
    const uint64_t now_ns = engine::monotonic_ns();
    for (size_t i = 0; i < core_.links.size(); ++i) {
      const ChildLink& link = *core_.links[i];
      const auto child = static_cast<int32_t>(i);
      if (!is_idle[static_cast<uint8_t>(link.configuration.kind)] || link.in_flight() < 2) continue;
      if (is_slow(child, now_ns)) paces_[i].has_nothing = !move_from(child);
      is_unbalanced = is_unbalanced || !paces_[i].has_nothing;
    }
  }
  if (core_.flags.is_unbalanced.load(std::memory_order_relaxed) != is_unbalanced)
    core_.flags.is_unbalanced = is_unbalanced;
}

bool Withdrawals::is_slow(int32_t child, uint64_t now_ns) {
  Pace& pace = paces_[static_cast<size_t>(child)];
  const uint64_t started = core_.progress.child(child).started.load(std::memory_order_relaxed);
  const uint64_t sent = core_.link(child).sent();
  if (pace.started != started || pace.sent != sent) {
    pace = {started, sent, now_ns, false};
    return false;
  }
  return !pace.has_nothing && now_ns - pace.since_ns >= kSlowNs;
}

// Return whether any task was taken back. A task that was sent before its producer has ended moves
// only together with it.
bool Withdrawals::move_from(int32_t child) {
  std::vector<uint64_t> counts;
  for (const uint64_t count : waiting_in(child)) {
    const QueuedFrame& frame = core_.link(child).frame(count);
    const bool is_free = frame.required_child == kNone ||
                         (frame.required_child == child &&
                          std::binary_search(counts.begin(), counts.end(), frame.required_count));
    if (is_free && core_.engine->may_move(child, count)) counts.push_back(count);
  }
  if (counts.empty()) return false;
  take_back(child, counts);
  exchange_.dispatch();
  return true;
}

}  // namespace pto::worker
