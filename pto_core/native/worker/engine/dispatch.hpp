// The dispatcher. It decides when a task is sent, and to which child.
//
// Groups are sent first, in the order in which they became ready. All members of a group are sent
// in one step, so any two groups have the same order in all children. A group that cannot be sent
// reserves its children: no single task and no later group is sent to a reserved child, so the
// group waits for at most one completion of each child. If all children of a group are READY, but
// the group can neither be sent nor reserve a child, the dispatcher tries no later group of its
// kind in this pass. Single tasks follow, then tasks that can be sent before their producer has
// finished.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "engine/core.hpp"
#include "engine/endings.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

class Dispatcher {
 public:
  Dispatcher(EngineState& core, Endings& endings, Policy policy);

  // Send tasks until no more can be sent.
  void dispatch();
  // Return whether a child that has become idle may run tasks that wait in other children: the
  // policy does not bind tasks to children, and no group waits for children.
  bool can_tasks_move() const { return !policy_ && core_.queues.groups() == 0; }

 private:
  // After this many groups in a row, a waiting single task is sent first.
  static constexpr uint32_t kGroupsInARow = 64;

  // Try each queue once. Return whether another pass may find more tasks to send.
  bool pass();
  bool try_groups();
  bool try_group(uint32_t index);
  void reserve_for(const Slot& slot);
  // Fill `allowed_`, then fill `chosen_` with a child for each member. Use only children that
  // `fits` accepts.
  void allow(const Slot& slot);
  template <class Fits>
  uint32_t count(Fits&& fits) const;
  template <class Fits>
  void choose(const Slot& slot, Fits&& fits);

  // Try to send a single task. Return whether it was sent, or failed because all its children are
  // lost.
  bool try_oldest_single();
  bool try_single(uint32_t index);
  EngineChild* pick(const Slot& slot);
  EngineChild* pick_least_loaded(const Slot& slot);
  EngineChild* pick_by_policy(const Slot& slot);
  bool is_of_use(const EngineChild& child) const {
    return child.state == EngineChildState::kLost || takes(child);
  }
  bool may_change(uint8_t kind) const;

  bool try_oldest_early();
  void send_early(uint32_t index, EngineChild& child);

  bool is_reserved(const EngineChild& child) const { return child.reserved == pass_; }
  bool takes(const EngineChild& child) const { return child.has_space() && !is_reserved(child); }
  // Remove a READY task, or a task that is sent early, from its queue, and change its state.
  void start(uint32_t index, TaskEvent event);
  uint64_t send(uint32_t index, uint32_t member, EngineChild& child, int32_t required_child,
                uint64_t required_count);
  void consider_consumers(const Slot& slot);
  void keep_regions(Slot& slot);

  EngineState& core_;
  Endings& endings_;
  const Policy policy_;
  uint64_t pass_ = 0;  // a child whose `reserved` has this value is reserved for a waiting group
  bool is_closed_[2] = {};  // for each kind: whether no more groups are tried in this pass
  std::vector<EngineChild*> allowed_;
  std::vector<EngineChild*> chosen_;
  std::vector<EngineChild*> others_;
  std::vector<Candidate> candidates_;
};

}  // namespace pto::worker
