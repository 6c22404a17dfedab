#include "tensor_wait.hpp"

namespace pto::ring_buffer {

bool TensorWait::wait(const pto_tensor_data& tensor, bool for_write, CallSite at) {
  find_users(tensor);
  const SlotRef owner = tensor.owner == kNoTask ? kNoSlot : run_.rings.slot_of_task(tensor.owner);
  if (owner != kNoSlot) users_.add(owner, kOrders);
  const auto has_ended = [&] { return is_free(owner, for_write); };
  if ((users_.count() == 0 && !for_write) || has_ended()) return true;
  Blocked blocked;
  blocked.what = Resource::kTasks;
  blocked.depth = run_.scopes.depth();
  blocked.ring = Scopes::ring_at(blocked.depth);
  blocked.needed = users_.count() != 0 ? users_.count() : 1;
  blocked.file = at.file;
  blocked.line = at.line;
  return wait_.wait_until(blocked, has_ended);
}

void TensorWait::find_users(const pto_tensor_data& tensor) {
  users_.clear();
  const Access access(locate_access(tensor));
  TensorMap& map = run_.space.map();
  map.prepare(access);
  map.find_writers(access,
                   [&](int64_t task, bool) { users_.add(run_.rings.slot_of_task(task), kOrders); });
}

// Until all submits are wired, a slot may still contain the state of an earlier task.
bool TensorWait::is_free(SlotRef owner, bool for_write) const {
  const Rings& rings = run_.rings;
  if (rings.wired.load(std::memory_order_acquire) != rings.logged.load(std::memory_order_relaxed)) {
    return false;
  }
  // the readers of memory without an owner are not recorded
  if (for_write && owner == kNoSlot) return is_all_done();
  for (const EdgeList::Item& user : users_) {
    if (!is_done(user.producer)) return false;
  }
  if (!for_write) return true;
  const RingTaskState& state = rings.state(owner);
  return state.released.load(std::memory_order_acquire) ==
         state.held.load(std::memory_order_relaxed);
}

bool TensorWait::is_done(SlotRef task) const {
  const uint32_t phase = run_.rings.state(task).phase.load(std::memory_order_acquire);
  return phase == kDone || phase == kConsumed;
}

bool TensorWait::is_all_done() const {
  for (uint32_t index = 0; index < kRings; ++index) {
    const TaskRing& ring = run_.rings.ring[index];
    for (int64_t number = ring.watermark.load(std::memory_order_acquire); number < ring.next;
         ++number) {
      if (!is_done(slot_ref(index, ring.slot(number)))) return false;
    }
  }
  return true;
}

}  // namespace pto::ring_buffer
