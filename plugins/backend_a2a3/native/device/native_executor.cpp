// The executor for threads that play cores. On the chip it is compiled by the vendor's compiler.
#include "access/native.hpp"
#include "core/executor.hpp"

#define PTO_ENTRY extern "C" __attribute__((visibility("default"))) void

PTO_ENTRY pto_a2a3_executor_0_mix_aic(const pto_a2a3_core_launch* launch) {
  pto::a2a3::Executor<pto::a2a3::NativeAic>(*launch).run();
}

PTO_ENTRY pto_a2a3_executor_0_mix_aiv(const pto_a2a3_core_launch* launch) {
  pto::a2a3::Executor<pto::a2a3::NativeAiv>(*launch).run();
}
