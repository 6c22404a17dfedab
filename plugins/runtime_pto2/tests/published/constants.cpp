// Uses the published compile-time constants as sources do: in array sizes, #if and arithmetic.
#include "platform_config.h"
#include "pto_orchestration_api.h"
#include "pto_runtime2_types.h"

#if PLATFORM_MAX_BLOCKDIM * 2 > PLATFORM_MAX_AIV_PER_THREAD
#error "more vector cores than a scheduler thread takes"
#endif

alignas(PTO2_ALIGN_SIZE) static char padded[PTO2_PACKED_OUTPUT_ALIGN];

extern "C" int aicpu_orchestration_entry(PTO2Runtime*, uint64_t* args, int arg_count) {
  const uint64_t values[] = {
      PLATFORM_MAX_BLOCKDIM,
      PLATFORM_MAX_AICPU_THREADS,
      PLATFORM_MAX_AIC_PER_THREAD,
      PLATFORM_MAX_AIV_PER_THREAD,
      PLATFORM_PROF_SYS_CNT_FREQ,
      PTO2_MAX_RING_DEPTH,
      PTO2_TASK_WINDOW_SIZE,
      PTO2_HEAP_SIZE,
      PTO2_HEAP_SIZE * PTO2_MAX_RING_DEPTH,
      PTO2_DEP_LIST_POOL_SIZE,
      PTO2_TENSORMAP_POOL_SIZE,
      PTO2_TENSORMAP_NUM_BUCKETS,
      PTO2_TENSORMAP_CLEANUP_INTERVAL,
      PTO2_ALIGN_SIZE,
      sizeof padded,
  };
  if (arg_count != int{sizeof values / sizeof *values}) return 100;
  for (int i = 0; i < arg_count; ++i) {
    if (args[i] != values[i]) return i + 1;
  }
  return 0;
}
