// The settings of the fake driver: see control.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "abi/chip.h"

namespace pto::fake {

struct Settings {
  uint32_t devices = 4;
  std::string soc = "Ascend910B3";
  std::string version = "8.3.RC1";
  uint64_t memory_mib = 1024;
  uint64_t operation_timeout_ms = 2000;
  uint32_t async_copy_ms = 0;
  uint32_t cubes = 24;
  uint32_t vectors = 48;
  uint32_t streams = 1984;
  bool probe = true;
  bool has_clusters = true;
  uint64_t register_bytes = PTO_A2A3_REGISTER_BYTES;
  uint64_t seed = 1;
  std::string process;
  std::string silicon;
  std::string libraries;

  // Returns whether all keys and values are valid. After an invalid one, the others are unchanged.
  bool read(std::string_view text);
};

}  // namespace pto::fake
