// The AICPU's side of one core: it opens the core, passes tasks, polls, and closes the core.
//
// One AICPU thread at a time uses a link. Between dispatch() and the end of the task the slot
// belongs to the core. No kernel may write its arguments: they are in the slot, and a cache line of
// the slot that the core changed could overwrite the next task.
//
// Sequence numbers continue from one launch to the next, so that a copy of the slots and of
// pto_a2a3_progress shows which tasks are in flight.
#pragma once

#include <cstdint>

#include "abi/launch.h"

namespace pto::a2a3 {

enum class CoreTaskState { running, finished, faulted };

template <class Access>
class CoreLink {
 public:
  // The slot and the handshake line of one logical core stay valid as long as the link. `sequence`
  // is the number of the newest task of that core, 0 if it has had none.
  void bind(pto_a2a3_slot* slot, pto_a2a3_handshake* report, uint32_t sequence) {
    slot_ = slot;
    report_ = report;
    sequence_ = sequence;
  }

  // Returns whether the core has reported for this launch.
  bool has_reported(uint64_t launch) {
    Access::invalidate(report_, sizeof *report_);
    if (Access::load_flag(&report_->launch) != launch) return false;
    Access::order_loads();
    return true;
  }
  uint32_t physical() const { return Access::load(&report_->physical); }
  uint32_t core_type() const { return Access::load(&report_->core_type); }

  // Opens the core, whose register page is at `page`. The core then resets COND.
  void open(uint64_t page, uint64_t launch) {
    page_ = page;
    idle_ = pto_a2a3_idle(launch);
    Access::store_register(page_ + PTO_A2A3_FAST_PATH_ENABLE, PTO_A2A3_FAST_PATH_OPEN);
    Access::store_register(page_ + PTO_A2A3_DATA_MAIN_BASE, idle_);
  }
  bool is_open() const { return page_ != 0; }
  bool is_ready() const { return cond() == (idle_ | PTO_COND_FINISHED); }

  // Passes a task to the core, which must be free.
  void dispatch(const pto_payload& payload, uint32_t length) {
    place(payload, length);
    start();
  }
  // The two steps of dispatch(): in between, the slot has the task.
  void place(const pto_payload& payload, uint32_t length) {
    sequence_ = sequence_ == PTO_SEQUENCE_MAX ? 1 : sequence_ + 1;
    Access::store(&slot_->sequence, sequence_);
    Access::store(&slot_->length, length);
    Access::copy(&slot_->payload, &payload, length);
    place_arguments(payload);
    Access::clean(slot_, offsetof(pto_a2a3_slot, payload) + length);
  }
  void start() {
    Access::order_stores();
    Access::store_register(page_ + PTO_A2A3_DATA_MAIN_BASE, sequence_);
  }

  // Returns the state of the newest task. When it has finished, its outputs can be read.
  CoreTaskState poll() {
    const uint32_t value = cond();
    if (value == (sequence_ | PTO_COND_FINISHED)) {
      Access::order_loads();
      return CoreTaskState::finished;
    }
    return value == PTO_A2A3_COND_FAULT && has_fault() ? CoreTaskState::faulted
                                                       : CoreTaskState::running;
  }

  // Returns whether the newest task has faulted. COND may be that of an earlier task: it changes
  // when the core takes the new one.
  bool has_fault() {
    Access::order_loads();
    Access::invalidate(report_, sizeof *report_);
    return Access::load(&report_->expected) == sequence_;
  }

  // The number of the newest task.
  uint32_t sequence() const { return sequence_; }
  // Of a task that has faulted.
  pto_a2a3_handshake report() const {
    pto_a2a3_handshake copy;
    Access::copy(&copy, report_, sizeof copy);
    return copy;
  }

  void ask_to_leave() {
    Access::store_register(page_ + PTO_A2A3_DATA_MAIN_BASE, PTO_SEQUENCE_EXIT);
  }
  bool has_left() const { return cond() == (PTO_SEQUENCE_EXIT | PTO_COND_FINISHED); }
  // The core has left. Its doorbell returns to idle, then the AICPU gives up its registers.
  void close() {
    Access::store_register(page_ + PTO_A2A3_DATA_MAIN_BASE, idle_);
    Access::store_register(page_ + PTO_A2A3_FAST_PATH_ENABLE, PTO_A2A3_FAST_PATH_CLOSE);
    page_ = 0;
  }

 private:
  uint32_t cond() const { return Access::load_register(page_ + PTO_A2A3_COND); }

  // Turns the offsets in the arguments into addresses in the slot.
  void place_arguments(const pto_payload& payload) {
    const auto* given = reinterpret_cast<const uint64_t*>(&payload + 1);
    auto* placed = reinterpret_cast<uint64_t*>(&slot_->payload + 1);
    const uint64_t start = reinterpret_cast<uint64_t>(&slot_->payload);
    for (uint64_t rest = payload.relative_args; rest != 0; rest &= rest - 1) {
      const int index = __builtin_ctzll(rest);
      Access::store(&placed[index], given[index] + start);
    }
  }

  pto_a2a3_slot* slot_ = nullptr;
  pto_a2a3_handshake* report_ = nullptr;
  uint64_t page_ = 0;  // 0: not open
  uint32_t idle_ = 0;
  uint32_t sequence_ = 0;
};

}  // namespace pto::a2a3
