#include "launches.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "abi/dispatcher.h"
#include "abi/launch.h"

namespace pto::fake {

using namespace a2a3::cann;

namespace {

// The names that the AICPU of the fake device knows, of CANN 8.1 to 9.1.
constexpr const char* kBootstrapKernel = "DynTileFwkKernelServerInit";
constexpr const char* kBootstrapLibrary = "libaicpu_extend_kernels.so";
constexpr const char* kDispatcherEntries[] = {
    "StaticTileFwkBackendKernelServer",
    "DynTileFwkBackendKernelServerInit",
    "DynTileFwkBackendKernelServer",
};

// The entry of the dispatcher that CANN calls first.
constexpr const char* kInstall = "DynTileFwkBackendKernelServerInit";

std::string name_at(const AicpuArguments& arguments, uint32_t offset) {
  if (offset >= arguments.args_size) return "";
  const char* start = static_cast<const char*>(arguments.args) + offset;
  return std::string(start, strnlen(start, arguments.args_size - offset));
}

// Returns the bytes of a file in device memory; empty if it is no ELF file that the host wrote.
std::string library_at(Memory& memory, uint64_t address, uint64_t bytes) {
  const Block* block = memory.find(address, bytes);
  if (block == nullptr || !block->is_written || bytes < 4) return "";
  std::string file(reinterpret_cast<const char*>(memory.view(address)), bytes);
  return file.starts_with("\177ELF") ? file : "";
}

// The program sees the arguments in device memory, only during the launch.
Code run_program(Device& device, const Program& program, const Launch& launch, uint64_t stream,
                 const std::atomic<int>& stop) {
  std::unique_lock lock(state().mutex);
  const uint64_t bytes = std::max<uint64_t>(launch.arguments.size(), 1);
  const uint64_t address = device.memory.allocate(bytes);
  if (address == 0) return kAicpuException;
  if (!launch.arguments.empty()) {
    std::memcpy(device.memory.view(address), launch.arguments.data(), launch.arguments.size());
  }
  lock.unlock();
  static_assert(sizeof(std::atomic<int>) == sizeof(int));
  const bool is_core = launch.code != nullptr;
  const pto_fake_launch seen = {
      is_core, launch.function.name.c_str(), launch.blocks, is_core ? launch.code->number : 0,
      address, launch.arguments.size(),      stream,        reinterpret_cast<const int*>(&stop)};
  const Code code = program.function(program.context, &seen);
  lock.lock();
  device.memory.free(address);
  return code;
}

// Loads a file into the device process. Returns its handle, 0 if the chip refuses it.
uint64_t load_file(Device& device, ChipProcess& chip, uint32_t kind, const void* bytes,
                   size_t count) {
  std::unique_lock lock(state().mutex);
  const uint64_t address = count > 0 ? device.memory.allocate(count) : 0;
  if (address == 0) return 0;
  std::memcpy(device.memory.view(address), bytes, count);
  lock.unlock();
  const uint64_t handle = chip.load(kind, address, count);
  lock.lock();
  device.memory.free(address);
  return handle;
}

// Returns the handle of a library that a dispatcher has installed, 0 if there is no such file.
uint64_t find_library(Device& device, ChipProcess& chip, const std::string& name) {
  if (const uint64_t known = chip.library(name)) return known;
  std::unique_lock lock(state().mutex);
  const std::string path = state().settings.libraries + "/" + name;
  lock.unlock();
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const uint64_t handle = load_file(device, chip, SILICON_LOAD, bytes.data(), bytes.size());
  chip.keep_library(name, handle);
  return handle;
}

uint64_t find_code(Device& device, ChipProcess& chip, CoreBinary& code) {
  if (code.handle == 0) {
    code.handle = load_file(device, chip, SILICON_CODE, code.bytes.data(), code.bytes.size());
  }
  return code.handle;
}

Code run_on_chip(ChipProcess& chip, uint32_t kind, uint64_t handle, const std::string& symbol,
                 const Launch& launch, const std::atomic<int>& stop) {
  silicon_request request{};
  const bool fits =
      symbol.size() < sizeof request.symbol && launch.arguments.size() <= sizeof request.arguments;
  if (handle == 0 || !fits) return kind == SILICON_AICORE ? kAicException : kAicpuException;
  request.kind = kind;
  request.threads = launch.blocks;
  request.handle = handle;
  request.argument_bytes = launch.arguments.size();
  symbol.copy(request.symbol, symbol.size());
  std::copy(launch.arguments.begin(), launch.arguments.end(), request.arguments);
  return chip.launch(request, stop);
}

Code run_launch(Device& device, const Launch& launch, uint64_t stream,
                const std::atomic<int>& stop) {
  std::unique_lock lock(state().mutex);
  const Program program = state().program;
  const std::shared_ptr<ChipProcess> chip = device.chip;
  lock.unlock();
  if (program.function != nullptr) return run_program(device, program, launch, stream, stop);
  if (chip == nullptr) return kAicpuException;
  if (launch.code == nullptr) {
    const uint64_t library = find_library(device, *chip, launch.function.file);
    return run_on_chip(*chip, SILICON_AICPU, library, launch.function.name, launch, stop);
  }
  const uint64_t code = find_code(device, *chip, *launch.code);
  return run_on_chip(*chip, SILICON_AICORE, code, PTO_A2A3_EXECUTOR_SYMBOL, launch, stop);
}

// The consequence of a failure appears after it: the stream with the failure is the first to end.
Code let_cause_end(Device& device, Code code, const std::atomic<int>& stop) {
  if (code != kCascade) return code;
  std::unique_lock lock(state().mutex);
  state().changed.wait(lock, [&] { return device.poison != 0 || stop != 0; });
  return code;
}

// Checks what the host has uploaded; the dispatcher's part is the block's.
Code check_bootstrap(Device& device, const pto_a2a3_bootstrap_arguments& arguments,
                     pto_a2a3_bootstrap_block* block) {
  const std::lock_guard lock(state().mutex);
  const Block* found = device.memory.find(arguments.block, sizeof *block);
  if (found == nullptr || !found->is_written) return kAicpuException;
  std::memcpy(block, device.memory.view(arguments.block), sizeof *block);
  const std::string dispatcher =
      library_at(device.memory, block->dispatcher, block->dispatcher_bytes);
  const std::string inner = library_at(device.memory, block->library, block->library_bytes);
  for (const char* entry : kDispatcherEntries) {
    if (dispatcher.find(entry) == std::string::npos) return kAicpuException;
  }
  if (inner.empty()) return kAicpuException;
  // Devices that share an AICPU would overwrite each other's file.
  if (block->device != device.number) {
    state().error("file name", "the bootstrap has the number " + std::to_string(block->device) +
                                   ", but the device of the driver is " +
                                   std::to_string(device.number));
  }
  // The AICPU process of the host process keeps the first inner library that it received.
  if (state().inner_library.empty()) state().inner_library = inner;
  if (state().inner_library != inner) {
    state().error("latch", "a second inner library was installed; the device runs the first one");
  }
  device.has_aicpu_library = true;
  return 0;
}

// Without a device process, the fake driver stands in for the dispatcher.
Code run_bootstrap(Device& device, const Launch& launch, const std::atomic<int>& stop) {
  pto_a2a3_bootstrap_arguments arguments;
  pto_a2a3_bootstrap_block block;
  std::memcpy(&arguments, launch.arguments.data(), sizeof arguments);
  const Code code = check_bootstrap(device, arguments, &block);
  std::unique_lock lock(state().mutex);
  const std::shared_ptr<ChipProcess> chip = device.chip;
  lock.unlock();
  if (code != 0 || chip == nullptr) return code;
  const uint64_t handle = chip->load(SILICON_LOAD, block.dispatcher, block.dispatcher_bytes);
  return run_on_chip(*chip, SILICON_AICPU, handle, kInstall, launch, stop);
}

// A run starts the cores and several AICPU threads; commands need one AICPU thread.
void check_launch(Call& call, const Launch& launch) {
  Device& device = *call.device;
  device.is_synchronised = false;
  if (device.needs_probe) {
    state().error("probe", call.function() +
                               " before a new stream was synchronised once after a "
                               "forced reset");
  }
  const bool is_core = launch.code != nullptr;
  if (!is_core && launch.blocks > 1 && !device.has_core_launch) {
    state().warn("order", call.function() +
                              " before the launch on the cores; the other order starts faster");
  }
  if (is_core || launch.blocks > 1) device.has_core_launch = is_core;
}

}  // namespace

Code add_launch(Call& call, Stream& stream, Launch launch) {
  check_launch(call, launch);
  Device& device = *call.device;
  const bool is_core = launch.code != nullptr;
  const Code late = call.take_late();
  const uint64_t number = stream.number;
  auto work = [&device, launch = std::move(launch), late, number](const std::atomic<int>& stop) {
    if (late != 0) return late;
    return let_cause_end(device, run_launch(device, launch, number, stop), stop);
  };
  stream.add({std::move(work), is_core});
  return 0;
}

Code add_bootstrap(Call& call, Stream& stream, const AicpuArguments& arguments, bool is_known) {
  const Code late = call.take_late();
  const std::string kernel = name_at(arguments, arguments.kernel_name_offset);
  const std::string library = name_at(arguments, arguments.so_name_offset);
  is_known = is_known && kernel == kBootstrapKernel && library == kBootstrapLibrary &&
             arguments.args_size == sizeof(pto_a2a3_bootstrap_arguments);
  const auto* start = static_cast<const uint8_t*>(arguments.args);
  const Launch launch = {nullptr, {}, 1, {start, start + arguments.args_size}};
  Device& device = *call.device;
  auto work = [&device, launch, late, is_known](const std::atomic<int>& stop) {
    if (late != 0 || !is_known) return late != 0 ? late : kAicpuException;
    return let_cause_end(device, run_bootstrap(device, launch, stop), stop);
  };
  stream.add({std::move(work), false});
  return 0;
}

}  // namespace pto::fake
