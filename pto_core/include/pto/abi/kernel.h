/* Attributes of kernel sources, so that one source serves a chip and a simulator.
 *
 *   #include "pto/abi/kernel.h"
 *
 *   extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
 *     __gm__ float* out = (__gm__ float*)args[0];
 *
 * `__aicore__` marks a function that runs on a core, and `__gm__` the memory that a pointer into
 * global memory points to. The recipe of a chip's compiler defines PTO_AICORE: then the compiler
 * itself knows `__gm__`. For any other compiler both attributes are empty.
 */
#ifndef PTO_ABI_KERNEL_H
#define PTO_ABI_KERNEL_H

#include <stdint.h>

#ifdef PTO_AICORE
#ifndef __aicore__
#define __aicore__ [aicore]
#endif
#else
#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif
#endif

/* Return the float32 number whose bits are in the lower half of a scalar argument. */
static inline __aicore__ float pto_float_argument(int64_t argument) {
  union {
    uint32_t bits;
    float value;
  } number;
  number.bits = (uint32_t)argument;
  return number.value;
}

#endif
