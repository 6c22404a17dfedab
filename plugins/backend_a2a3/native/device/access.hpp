// The access policy of the AICPU side. PTO_A2A3_CHIP selects the chip; otherwise the device library
// is for the device process.
#pragma once

#ifdef PTO_A2A3_CHIP
#include "access/chip_aicpu.hpp"
#else
#include "access/native.hpp"
#endif

namespace pto::a2a3 {

#ifdef PTO_A2A3_CHIP
using Aicpu = ChipAicpu;
#else
using Aicpu = NativeAicpu;
#endif

// Makes what the host wrote at a device address readable, and returns it.
template <class Block>
Block* from_host(uint64_t address, uint64_t bytes = sizeof(Block)) {
  Aicpu::invalidate(reinterpret_cast<const void*>(address), bytes);
  return reinterpret_cast<Block*>(address);
}

}  // namespace pto::a2a3
