// The program of one core: it reports to the AICPU, runs the tasks that it is given, and leaves.
//
// The executor changes its handshake line and COND only, so it never writes back a stale line of
// its slot. Before it reads a task it drops its whole cache: the inputs of the kernel were written
// by other cores, too. It writes back the outputs of the kernel before it sets COND.
#pragma once

#include <cstdint>

#include "abi/launch.h"
#include "pto/abi/kernel.h"

namespace pto::a2a3 {

template <class Access>
class Executor {
 public:
  explicit __aicore__ Executor(const pto_a2a3_core_launch& launch)
      : launch_(launch.launch),
        flag_base_(launch.flag_base),
        cores_(reinterpret_cast<__gm__ pto_a2a3_cores*>(launch.cores)) {
    const uint32_t block = Access::block();
    const uint32_t core =
        Access::is_aic() ? block : Access::blocks() + 2 * block + Access::subblock();
    report_ = &cores_->handshake[core];
    slot_ = &cores_->slot[core];
    if (launch.texts != 0) texts_ = reinterpret_cast<__gm__ pto_a2a3_texts*>(launch.texts) + core;
  }

  // Returns when the AICPU asks the core to leave, or has given the launch up.
  __aicore__ void run() {
    Access::set_flag_base(flag_base_);
    if (texts_ != nullptr) open_texts();
    report();
    uint32_t doorbell = wait_for_aicpu();
    if (doorbell == 0) return;
    if (doorbell != PTO_SEQUENCE_EXIT) Access::store_cond(doorbell | PTO_COND_FINISHED);
    while (doorbell != PTO_SEQUENCE_EXIT) {
      const uint32_t next = Access::load_doorbell();
      if (next == doorbell) {
        Access::wait(doorbell);
        continue;
      }
      doorbell = next;
      if (doorbell != PTO_SEQUENCE_EXIT) execute(doorbell);
    }
    Access::store_cond(PTO_SEQUENCE_EXIT | PTO_COND_FINISHED);
  }

 private:
  static constexpr uint32_t kPollsBetweenChecks = 1000;

  // Kernels find their texts, and the task to which they belong.
  __aicore__ void open_texts() {
    Access::store(&texts_->slot, reinterpret_cast<uint64_t>(slot_));
    Access::set_texts(reinterpret_cast<uint64_t>(texts_));
  }

  __aicore__ void report() {
    Access::invalidate(report_, sizeof *report_);
    Access::store(&report_->physical, Access::physical());
    Access::store(&report_->core_type, uint32_t{Access::is_aic() ? PTO_CORE_AIC : PTO_CORE_AIV});
    Access::store(&report_->fault, uint32_t{PTO_A2A3_FAULT_NONE});
    Access::store(&report_->expected, 0u);
    Access::order_stores();
    Access::store_flag(&report_->launch, launch_);
    Access::clean(report_, sizeof *report_);
    Access::order_stores();
  }

  // Returns the first value at the doorbell other than 0, or 0 if the AICPU has closed the launch.
  __aicore__ uint32_t wait_for_aicpu() {
    for (uint32_t polls = 1;; ++polls) {
      const uint32_t doorbell = Access::load_doorbell();
      if (doorbell != 0) return doorbell;
      Access::wait(0);
      if (polls % kPollsBetweenChecks != 0) continue;
      Access::invalidate(&cores_->closed, sizeof cores_->closed);
      if (Access::load_flag(&cores_->closed) >= launch_) return 0;
    }
  }

  __aicore__ void execute(uint32_t doorbell) {
    Access::store_cond(doorbell);
    Access::order_loads();
    Access::invalidate_all();
    const uint32_t sequence = Access::load(&slot_->sequence);
    if (sequence != doorbell) return fail(doorbell, PTO_A2A3_FAULT_SLOT, sequence);
    const uint64_t kernel = Access::load(&slot_->payload.kernel);
    if (!Access::is_code(kernel)) return fail(doorbell, PTO_A2A3_FAULT_KERNEL, kernel);
    if (!Access::call(kernel, reinterpret_cast<__gm__ uint64_t*>(&slot_->payload + 1))) {
      return fail(doorbell, PTO_A2A3_FAULT_ASSERTION, reinterpret_cast<uint64_t>(&texts_->failure));
    }
    Access::clean_all();
    Access::order_stores();
    Access::store_cond(doorbell | PTO_COND_FINISHED);
  }

  __aicore__ void fail(uint32_t doorbell, uint32_t fault, uint64_t value) {
    Access::store(&report_->fault, fault);
    Access::store(&report_->value, value);
    Access::store(&report_->expected, doorbell);
    Access::clean(report_, sizeof *report_);
    Access::order_stores();
    Access::store_cond(PTO_A2A3_COND_FAULT);
  }

  const uint64_t launch_;
  const uint64_t flag_base_;
  __gm__ pto_a2a3_cores* const cores_;
  __gm__ pto_a2a3_handshake* report_;
  __gm__ pto_a2a3_slot* slot_;
  __gm__ pto_a2a3_texts* texts_ = nullptr;  // null: no kernel prints
};

}  // namespace pto::a2a3
