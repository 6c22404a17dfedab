#include "launches.hpp"

#include <algorithm>
#include <cstring>

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

// The layout of the bootstrap's argument and of the block to which it points.
constexpr size_t kBlockPointer = 40;
constexpr size_t kBlockBytes = 160;
constexpr size_t kDispatcher = 96;
constexpr size_t kInner = 120;

uint64_t word(const uint8_t* bytes, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

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
Code run_program(Device& device, const Launch& launch, uint64_t stream,
                 const std::atomic<int>& stop) {
  std::unique_lock lock(state().mutex);
  const Program program = state().program;
  const uint64_t bytes = std::max<uint64_t>(launch.arguments.size(), 1);
  const uint64_t address = device.memory.allocate(bytes);
  if (program.function == nullptr || address == 0) return kAicpuException;
  if (!launch.arguments.empty()) {
    std::memcpy(device.memory.view(address), launch.arguments.data(), launch.arguments.size());
  }
  lock.unlock();
  static_assert(sizeof(std::atomic<int>) == sizeof(int));
  const pto_fake_launch seen = {
      launch.is_core, launch.symbol.c_str(),   launch.blocks, 0,
      address,        launch.arguments.size(), stream,        reinterpret_cast<const int*>(&stop)};
  const Code code = program.function(program.context, &seen);
  lock.lock();
  device.memory.free(address);
  return code;
}

Code install(Device& device, const std::vector<uint8_t>& arguments) {
  const std::lock_guard lock(state().mutex);
  const uint64_t block = word(arguments.data(), kBlockPointer);
  const Block* found = device.memory.find(block, kBlockBytes);
  if (found == nullptr || !found->is_written) return kAicpuException;
  const uint8_t* view = device.memory.view(block);
  const std::string dispatcher =
      library_at(device.memory, word(view, kDispatcher), word(view, kDispatcher + 8));
  const std::string inner = library_at(device.memory, word(view, kInner), word(view, kInner + 8));
  for (const char* entry : kDispatcherEntries) {
    if (dispatcher.find(entry) == std::string::npos) return kAicpuException;
  }
  if (inner.empty()) return kAicpuException;
  // The AICPU process of the host process keeps the first inner library that it received.
  if (state().inner_library.empty()) state().inner_library = inner;
  if (state().inner_library != inner) {
    state().error("latch", "a second inner library was installed; the device runs the first one");
  }
  device.has_aicpu_library = true;
  return 0;
}

// A run starts the cores and several AICPU threads; commands need one AICPU thread.
void check_launch(Call& call, const Launch& launch) {
  Device& device = *call.device;
  if (device.needs_probe) {
    state().error("probe", call.function() +
                               " before a new stream was synchronised once after a "
                               "forced reset");
  }
  if (!launch.is_core && launch.blocks > 1 && !device.has_core_launch) {
    state().warn("order", call.function() +
                              " before the launch on the cores; the other order starts faster");
  }
  if (launch.is_core || launch.blocks > 1) device.has_core_launch = launch.is_core;
}

}  // namespace

Code add_launch(Call& call, Stream& stream, Launch launch) {
  check_launch(call, launch);
  Device& device = *call.device;
  const bool is_core = launch.is_core;
  const Code late = call.take_late();
  const uint64_t number = stream.number;
  auto work = [&device, launch = std::move(launch), late, number](const std::atomic<int>& stop) {
    return late != 0 ? late : run_program(device, launch, number, stop);
  };
  stream.add({std::move(work), is_core});
  return 0;
}

Code add_bootstrap(Call& call, Stream& stream, const AicpuArguments& arguments) {
  const Code late = call.take_late();
  const std::string kernel = name_at(arguments, arguments.kernel_name_offset);
  const std::string library = name_at(arguments, arguments.so_name_offset);
  const bool is_known = kernel == kBootstrapKernel && library == kBootstrapLibrary &&
                        arguments.args_size >= kBlockPointer + 8;
  const auto* start = static_cast<const uint8_t*>(arguments.args);
  std::vector<uint8_t> bytes(start, start + arguments.args_size);
  Device& device = *call.device;
  stream.add({[&device, bytes, late, is_known](const std::atomic<int>&) {
                if (late != 0 || !is_known) return late != 0 ? late : kAicpuException;
                return install(device, bytes);
              },
              false});
  return 0;
}

}  // namespace pto::fake
