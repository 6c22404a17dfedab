// The exported functions of the lower runtime (libruntime.so).
#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>

#include "exports.hpp"
#include "launches.hpp"

namespace pto::fake {

using namespace a2a3::cann;

namespace {

constexpr uint32_t kAicpuThreads = 6;
constexpr const char* kBootstrapOperation = "AST_DYN_AICPU";
// What the description of each function on the AICPU has.
constexpr const char* kMembers[] = {
    "\"opKernelLib\": \"AICPUKernel\"", "\"computeCost\": \"100\"",
    "\"engine\": \"DNN_VM_AICPU\"",     "\"flagAsync\": \"False\"",
    "\"flagPartial\": \"False\"",       "\"userDefined\": \"False\"",
};

Code register_binary(Call& call, const DeviceBinary* binary, Handle* handle) {
  if (binary == nullptr || binary->magic != kMagicAiCore || binary->version != 0 ||
      binary->data == nullptr || binary->length == 0) {
    return kInvalidParameter;
  }
  const auto* start = static_cast<const uint8_t*>(binary->data);
  std::vector<uint8_t> bytes(start, start + binary->length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!call.device->core_binaries.insert(std::hash<std::string_view>()(text)).second) {
    state().error("register once",
                  "rtRegisterAllKernel received a binary that is registered; it leaks memory");
  }
  *handle = state().add(std::make_shared<CoreBinary>(*call.device, std::move(bytes)));
  return 0;
}

// Returns whether a launch has only members that this driver knows; the others must be 0.
bool is_known(const CoreArguments* arguments, const TaskSettings* settings) {
  if (arguments == nullptr || arguments->args == nullptr || arguments->args_size == 0) return false;
  CoreArguments rest = *arguments;
  rest.args = nullptr;
  rest.args_size = 0;
  const CoreArguments no_arguments = {};
  if (std::memcmp(&rest, &no_arguments, sizeof rest) != 0) return false;
  if (settings == nullptr) return true;
  TaskSettings others = *settings;
  others.schedule_mode = 0;
  const TaskSettings no_settings = {};
  return settings->schedule_mode <= kBatchSchedule &&
         std::memcmp(&others, &no_settings, sizeof others) == 0;
}

bool is_known(const AicpuArguments& arguments) {
  if (arguments.args == nullptr || arguments.args_size == 0) return false;
  AicpuArguments rest = arguments;
  rest.args = nullptr;
  rest.args_size = rest.so_name_offset = rest.kernel_name_offset = 0;
  const AicpuArguments none = {};
  return std::memcmp(&rest, &none, sizeof rest) == 0;
}

bool is_known(const CpuArguments* arguments) {
  if (arguments == nullptr || !is_known(arguments->base)) return false;
  CpuArguments rest = *arguments;
  rest.base = {};
  const CpuArguments none = {};
  return std::memcmp(&rest, &none, sizeof rest) == 0;
}

// The driver may read the arguments only during the call, so the host must not need them later.
std::vector<uint8_t> take_arguments(void* arguments, size_t bytes) {
  auto* start = static_cast<uint8_t*>(arguments);
  const std::vector<uint8_t> taken(start, start + bytes);
  std::memset(arguments, 0xDD, bytes);
  return taken;
}

Code launch_cores(Call& call, Handle binary, uint32_t blocks, const CoreArguments* arguments,
                  Handle stream_handle, const TaskSettings* settings) {
  const auto code = state().get<CoreBinary>(binary, *call.device, call.name);
  const auto stream = state().get<Stream>(stream_handle, *call.device, call.name);
  if (code == nullptr || stream == nullptr) return kInvalidHandle;
  const bool fits = blocks > 0 && blocks <= call.device->blocks();
  if (!fits || !is_known(arguments, settings)) return kInvalidParameter;
  if (blocks > 1 && (settings == nullptr || settings->schedule_mode != kBatchSchedule)) {
    state().error("batch", "a launch whose blocks wait for each other needs the batch mode");
  }
  if (stream->code == nullptr) stream->code = code;
  if (stream->code != code) {
    state().error("old stream",
                  "other code was launched on a stream; the stream runs its first code");
  }
  return add_launch(
      call, *stream,
      {stream->code, {}, blocks, take_arguments(arguments->args, arguments->args_size)});
}

// Reads the description of an AICPU library: {"OPERATION": {"opInfo": {...}}}, with functionName,
// kernelSo and the members below.
std::map<std::string, CpuSymbol> read_description(const char* path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::regex entry(R"re("([^"]+)"\s*:\s*\{\s*"opInfo"\s*:\s*\{([^}]*)\})re");
  const std::regex function(R"re("functionName"\s*:\s*"([^"]+)")re");
  const std::regex library(R"re("kernelSo"\s*:\s*"([^"]+)")re");
  std::map<std::string, CpuSymbol> functions;
  for (std::sregex_iterator next(text.begin(), text.end(), entry), end; next != end; ++next) {
    std::smatch name, so;
    const std::string body = (*next)[2];
    const bool has_all =
        std::all_of(std::begin(kMembers), std::end(kMembers),
                    [&](const char* one) { return body.find(one) != std::string::npos; });
    if (has_all && std::regex_search(body, name, function) &&
        std::regex_search(body, so, library)) {
      functions[(*next)[1]] = {name[1], so[1]};
    }
  }
  return functions;
}

Code load_description(Call& call, const char* path, const LoadSettings* settings, Handle* handle) {
  const bool is_description = settings != nullptr && settings->num_options == 1 &&
                              settings->options[0].id == kLoadCpuKernelMode &&
                              settings->options[0].value[0] == kCpuKernelDescriptionOnly;
  if (!is_description || path == nullptr) return kInvalidParameter;
  auto functions = read_description(path);
  if (functions.empty()) return kInvalidParameter;
  *handle = state().add(std::make_shared<CpuBinary>(*call.device, std::move(functions)));
  return 0;
}

Code find_function(Call& call, Handle handle, const char* operation, Handle* function) {
  const auto binary = state().get<CpuBinary>(handle, *call.device, call.name);
  if (binary == nullptr) return kInvalidHandle;
  const auto found = binary->functions.find(operation);
  if (found == binary->functions.end()) return kKernelNotFound;
  *function = state().add(std::make_shared<CpuFunction>(*call.device, handle, found->second));
  return 0;
}

Code launch_aicpu(Call& call, Handle handle, uint32_t blocks, Handle stream_handle,
                  const CpuArguments* arguments) {
  const auto function = state().get<CpuFunction>(handle, *call.device, call.name);
  const auto stream = state().get<Stream>(stream_handle, *call.device, call.name);
  if (function == nullptr || stream == nullptr) return kInvalidHandle;
  if (!is_known(arguments) || blocks == 0 || blocks > kAicpuThreads) return kInvalidParameter;
  if (!call.device->has_aicpu_library) {
    // The AICPU looks for a file that no dispatcher has written.
    stream->add({[](const std::atomic<int>&) { return kAicpuException; }, false});
    return 0;
  }
  return add_launch(call, *stream,
                    {nullptr, function->symbol, blocks,
                     take_arguments(arguments->base.args, arguments->base.args_size)});
}

}  // namespace

}  // namespace pto::fake

using namespace pto::fake;
using namespace pto::a2a3::cann;

extern "C" {

Code rtGetC2cCtrlAddr(uint64_t* address, uint32_t* bytes) {
  return enter("rtGetC2cCtrlAddr", Needs::kHealthyDevice, [&](Call&) {
    if (address == nullptr || bytes == nullptr) return kInvalidParameter;
    *address = SILICON_FLAG_BASE;
    *bytes = PTO_A2A3_LINE;
    return 0;
  });
}

Code rtRegisterAllKernel(const DeviceBinary* binary, Handle* handle) {
  return enter("rtRegisterAllKernel", Needs::kHealthyDevice,
               [&](Call& call) { return register_binary(call, binary, handle); });
}

Code rtKernelLaunchWithHandleV2(Handle binary, uint64_t tiling_key, uint32_t blocks,
                                CoreArguments* arguments, void* memory, Handle stream,
                                const TaskSettings* settings) {
  return enter("rtKernelLaunchWithHandleV2", Needs::kHealthyDevice, [&](Call& call) {
    if (tiling_key != 0 || memory != nullptr) return kInvalidParameter;
    return launch_cores(call, binary, blocks, arguments, stream, settings);
  });
}

Code rtAicpuKernelLaunchExWithArgs(uint32_t type, const char* operation, uint32_t blocks,
                                   const AicpuArguments* arguments, void* memory, Handle handle,
                                   uint32_t flags) {
  return enter("rtAicpuKernelLaunchExWithArgs", Needs::kHealthyDevice, [&](Call& call) {
    const auto stream = state().get<Stream>(handle, *call.device, call.name);
    if (stream == nullptr) return kInvalidHandle;
    const bool is_valid = type == kAicpuKfc && operation != nullptr && blocks == 1 && flags == 0 &&
                          memory == nullptr && arguments != nullptr && is_known(*arguments);
    if (!is_valid) return kInvalidParameter;
    return add_bootstrap(call, *stream, *arguments, operation == std::string(kBootstrapOperation));
  });
}

Code rtsBinaryLoadFromFile(const char* path, const LoadSettings* settings, Handle* handle) {
  return enter("rtsBinaryLoadFromFile", Needs::kHealthyDevice,
               [&](Call& call) { return load_description(call, path, settings, handle); });
}

Code rtsBinaryUnload(Handle handle) {
  return enter("rtsBinaryUnload", Needs::kHealthyDevice, [&](Call& call) {
    const auto binary = state().get<CpuBinary>(handle, *call.device, call.name);
    if (binary == nullptr) return kInvalidHandle;
    const std::set<Handle> handles = call.device->objects;
    for (const Handle other : handles) {
      const auto function = std::dynamic_pointer_cast<CpuFunction>(state().objects.at(other));
      if (function != nullptr && function->binary == handle) {
        call.released.push_back(state().remove(other));
      }
    }
    call.released.push_back(state().remove(handle));
    return 0;
  });
}

Code rtsFuncGetByName(Handle handle, const char* operation, Handle* function) {
  return enter("rtsFuncGetByName", Needs::kHealthyDevice,
               [&](Call& call) { return find_function(call, handle, operation, function); });
}

Code rtsLaunchCpuKernel(Handle function, uint32_t blocks, Handle stream, const void* settings,
                        CpuArguments* arguments) {
  return enter("rtsLaunchCpuKernel", Needs::kHealthyDevice, [&](Call& call) {
    if (settings != nullptr) return kInvalidParameter;
    return launch_aicpu(call, function, blocks, stream, arguments);
  });
}

}  // extern "C"
