// Launches of the fake driver: what a host call becomes on its stream.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stream.hpp"

namespace pto::fake {

// The code for the cores that rtRegisterAllKernel received.
struct CoreBinary : Object {
  static constexpr const char* kName = "core binary";
  CoreBinary(Device& device, std::vector<uint8_t> bytes)
      : Object(kName, device), bytes(std::move(bytes)), number(++device.registered) {}
  const std::vector<uint8_t> bytes;
  const uint32_t number;
  uint64_t handle = 0;  // of the device process; 0: not loaded
};

// A function of a library on the AICPU, and the file of the library.
struct CpuSymbol {
  std::string name;
  std::string file;
};

// The description of a library on the AICPU: functions by operation.
struct CpuBinary : Object {
  static constexpr const char* kName = "AICPU binary";
  CpuBinary(Device& device, std::map<std::string, CpuSymbol> functions)
      : Object(kName, device, true), functions(std::move(functions)) {}
  const std::map<std::string, CpuSymbol> functions;
};

struct CpuFunction : Object {
  static constexpr const char* kName = "AICPU function";
  CpuFunction(Device& device, Handle binary, CpuSymbol symbol)
      : Object(kName, device), binary(binary), symbol(std::move(symbol)) {}
  const Handle binary;  // its unload ends the function
  const CpuSymbol symbol;
};

struct Launch {
  std::shared_ptr<CoreBinary> code;  // null: a launch on the AICPU
  CpuSymbol function;                // of a launch on the AICPU
  uint32_t blocks;
  std::vector<uint8_t> arguments;
};

// Adds a launch to its stream. The driver has copied the arguments; the device gets its own copy,
// which is overwritten when the launch ends.
Code add_launch(Call& call, Stream& stream, Launch launch);

// Adds the launch that runs the dispatcher, which installs the inner library.
// `is_known`: CANN has an operation of that name.
Code add_bootstrap(Call& call, Stream& stream, const a2a3::cann::AicpuArguments& arguments,
                   bool is_known);

}  // namespace pto::fake
