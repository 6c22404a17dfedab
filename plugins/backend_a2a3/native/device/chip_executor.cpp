// The executor for the cores of the chip. The compiler of CANN compiles it twice: __DAV_CUBE__ for
// the cube cores, __DAV_VEC__ for the vector cores. Both halves are linked into one file.
//
// The launch arguments of the host, pto_a2a3_core_launch, are the parameters of the entry.
#include "access/chip_aicore.hpp"
#include "core/executor.hpp"

#ifdef __DAV_CUBE__
#define PTO_EXECUTOR_ENTRY pto_a2a3_executor_0_mix_aic
#else
#define PTO_EXECUTOR_ENTRY pto_a2a3_executor_0_mix_aiv
#endif

extern "C" __global__ __aicore__ void PTO_EXECUTOR_ENTRY(uint64_t cores, uint64_t launch,
                                                         uint64_t flag_base, uint64_t texts) {
  pto::a2a3::Executor<pto::a2a3::ChipCore>({cores, launch, flag_base, texts}).run();
}
