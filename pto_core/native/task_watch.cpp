#include "task_watch.hpp"

#include <algorithm>
#include <atomic>

#include "pto/engine/task_name.hpp"

namespace pto::core {
namespace {

template <class T>
T relaxed(const T& member) {
  return std::atomic_ref<T>(const_cast<T&>(member)).load(std::memory_order_relaxed);
}

}  // namespace

std::string task_name(uint64_t task, uint32_t capabilities) {
  char name[64];
  engine::Text(name, sizeof name).add(engine::TaskName{static_cast<int64_t>(task), capabilities});
  return name;
}

std::vector<RunningTask> running_tasks(const pto_activity_page* page) {
  std::vector<RunningTask> running;
  if (!page) return running;
  const uint32_t slots = std::min<uint32_t>(relaxed(page->slots), PTO_ACTIVITY_SLOTS);
  for (uint32_t i = 0; i < slots; ++i) {
    const pto_activity_slot& slot = page->slot[i];
    const uint64_t sequence = relaxed(slot.sequence);
    if (sequence % 2 == 0) continue;
    const uint64_t since_ns = relaxed(slot.seen) == sequence ? relaxed(slot.seen_ns) : 0;
    RunningTask task{relaxed(slot.task), relaxed(slot.func_id), relaxed(slot.core),
                     relaxed(slot.kernel), since_ns};
    if (relaxed(slot.sequence) == sequence) running.push_back(task);
  }
  return running;
}

KernelCounts count_kernels(const pto_activity_page* page) {
  KernelCounts counts;
  if (!page) return counts;
  const uint32_t slots = std::min<uint32_t>(relaxed(page->slots), PTO_ACTIVITY_SLOTS);
  for (uint32_t i = 0; i < slots; ++i) {
    const uint64_t sequence = relaxed(page->slot[i].sequence);
    counts.begun += (sequence + 1) / 2;
    counts.ended += sequence / 2;
  }
  return counts;
}

void note_running(const pto_activity_page* page, uint64_t now_ns) {
  if (!page) return;
  const uint32_t slots = std::min<uint32_t>(relaxed(page->slots), PTO_ACTIVITY_SLOTS);
  for (uint32_t i = 0; i < slots; ++i) {
    // the core writes these two members; see pto/abi/activity.h
    auto& slot = const_cast<pto_activity_slot&>(page->slot[i]);
    const uint64_t sequence = relaxed(slot.sequence);
    if (sequence % 2 == 0 || slot.seen == sequence) continue;
    std::atomic_ref(slot.seen_ns).store(now_ns, std::memory_order_relaxed);
    std::atomic_ref(slot.seen).store(sequence, std::memory_order_release);
  }
}

std::optional<RunningTask> find_late(const pto_activity_page* page, uint64_t now_ns,
                                     uint64_t limit_ns) {
  for (const RunningTask& task : running_tasks(page))
    if (task.since_ns != 0 && now_ns >= task.since_ns + limit_ns) return task;
  return std::nullopt;
}

}  // namespace pto::core
