/* Facts of the A2/A3 chip that host, AICPU and AICore share: registers, cores, limits.
 *
 * An AICore is one physical core. Clusters (blocks) are numbered 0 to 24, of which a chip has 24 or
 * 20 in use. Physical core c is the AIC of cluster c; physical core 25 + 2c + i is its AIV i. This
 * numbering of the AIV cores has not been checked on silicon; only the host that fills
 * pto_a2a3_device.registers and the core that reports its number depend on it.
 */
#ifndef PTO_A2A3_ABI_CHIP_H
#define PTO_A2A3_ABI_CHIP_H

#include <stdint.h>

#include "pto/abi/payload.h"
#include "pto/abi/topology.h"

#define PTO_A2A3_LINE 64 /* bytes of a cache line, the unit of coherency */

#define PTO_A2A3_CLUSTERS 25
#define PTO_A2A3_PHYSICAL_CORES 75
#define PTO_A2A3_MAX_AICPU_CPUS 8
#define PTO_A2A3_AICPU_CLUSTER UINT64_C(0xF0) /* processors 4 to 7 are one cluster */

/* Registers of a core, as offsets from the start of its page. Each register has 32 bits. */
#define PTO_A2A3_FAST_PATH_ENABLE 0x18u /* AICPU writes: opens or closes the next two */
#define PTO_A2A3_DATA_MAIN_BASE 0xA0u   /* AICPU writes, core reads; a launch resets it to 0 */
#define PTO_A2A3_COND 0x4C8u            /* core writes, AICPU reads */
#define PTO_A2A3_FAST_PATH_OPEN 0xEu
#define PTO_A2A3_FAST_PATH_CLOSE 0xFu

/* The pages lie in one range that starts at the base of the register area. */
#define PTO_A2A3_CLUSTER_STRIDE (8u << 20)
#define PTO_A2A3_CORE_STRIDE (1u << 20) /* AIC, AIV 0, AIV 1 of a cluster */
#define PTO_A2A3_REGISTER_BYTES ((uint64_t)PTO_A2A3_CLUSTERS * PTO_A2A3_CLUSTER_STRIDE)

/* Values of DATA_MAIN_BASE. 0: the launch has reset it, and no AICPU thread has opened the core. 1
 * to PTO_SEQUENCE_MAX: run the task in the slot that has this sequence number. PTO_SEQUENCE_EXIT:
 * leave the executor. The eight idle values follow: the core is open and has no task yet. Each
 * launch uses the next idle value, so that the answer of an earlier launch is not mistaken. */
#define PTO_A2A3_IDLE 0x7FFFFFF8u
static inline uint32_t pto_a2a3_idle(uint64_t launch) {
  return PTO_A2A3_IDLE + (uint32_t)(launch & 7);
}

/* Values of COND. Bit 31 clear: the core runs the task with this number. Bit 31 and a sequence
 * number: the task has finished. Bit 31 and an idle value: the core is ready. Bit 31 and
 * PTO_SEQUENCE_EXIT: the core has left. PTO_A2A3_COND_FAULT: the core did not run the task; its
 * handshake line says why. */
#define PTO_A2A3_COND_FAULT 0xFFFFFFF1u

/* Convert a value of the system counter, which the chip has at 50 MHz. The product of a whole value
 * would overflow within minutes. */
static inline uint64_t pto_a2a3_nanoseconds(uint64_t ticks, uint64_t frequency) {
  return ticks / frequency * 1000000000u + ticks % frequency * 1000000000u / frequency;
}

/* Return the offset of the register page of a physical core in the register area. */
static inline uint64_t pto_a2a3_page_offset(uint32_t physical) {
  const uint32_t aiv = physical - PTO_A2A3_CLUSTERS;
  if (physical < PTO_A2A3_CLUSTERS) return (uint64_t)physical * PTO_A2A3_CLUSTER_STRIDE;
  return (uint64_t)(aiv / 2) * PTO_A2A3_CLUSTER_STRIDE + (1 + aiv % 2) * PTO_A2A3_CORE_STRIDE;
}

#endif
