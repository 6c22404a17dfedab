// The exported functions of the ACL runtime (libacl_rt.so, libascendcl.so).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "exports.hpp"
#include "stream.hpp"

namespace pto::fake {

using namespace a2a3::cann;

namespace {

struct Context : Object {
  static constexpr const char* kName = "context";
  explicit Context(Device& device) : Object(kName, device) {}
};

void start_chip(Device& device) {
  const Settings& settings = state().settings;
  if (settings.process.empty() || device.chip != nullptr) return;
  device.chip = std::make_shared<ChipProcess>(settings, device.memory);
}

// Removes all handles of a device's context.
void close_context(Call& call, Device& device, bool is_forced) {
  const std::set<Handle> handles = device.objects;
  for (const Handle handle : handles) {
    const std::shared_ptr<Object> object = state().remove(handle);
    if (auto* stream = dynamic_cast<Stream*>(object.get())) stream->abandon();
    // A forced reset releases handles; else the host must have done it.
    if (!is_forced && object->must_be_released) {
      state().findings.push_back(std::string("leak: ") + object->kind);
    }
    call.released.push_back(object);
  }
  device.context = nullptr;
  device.is_synchronised = false;
  device.references = 0;
  device.core_binaries.clear();
  device.registered = 0;
  device.has_aicpu_library = false;
  device.operation_timeout_ms = state().settings.operation_timeout_ms;
}

Code reset_device(Call& call, int32_t number, bool is_forced) {
  Device* device = state().logical(number);
  if (device == nullptr) return kInvalidDevice;
  if (device->references == 0) {
    state().error("pairing", call.function() + " without aclrtSetDevice");
    return kInvalidDevice;
  }
  if (!is_forced && --device->references > 0) return 0;
  if (!is_forced && device->poison != 0) {
    state().error("poison", "aclrtResetDevice of a poisoned device; it needs a forced reset");
  }
  if (is_forced && !device->is_synchronised) {
    state().error("settle",
                  call.function() + " before a bounded aclrtSynchronizeDeviceWithTimeout");
  }
  if (is_forced) device->is_poison_reported = false;
  if (is_forced && device->poison != 0 && state().settings.probe) {
    device->poison = 0;
    device->needs_probe = true;
  }
  if (is_forced && device->chip != nullptr) device->chip->kill();
  if (is_forced) device->chip = nullptr;
  if (is_forced) device->memory.release_all();
  close_context(call, *device, is_forced);
  return 0;
}

bool has_work(const Device& device) {
  return std::any_of(device.objects.begin(), device.objects.end(), [](Handle handle) {
    const auto* stream = dynamic_cast<const Stream*>(state().objects.at(handle).get());
    return stream != nullptr && !stream->is_idle();
  });
}

// The four kinds of a copy, as pairs of places.
bool is_on_device(int32_t kind, bool is_target) {
  if (kind == kDeviceToDevice) return true;
  return is_target ? kind == kHostToDevice : kind == kDeviceToHost;
}

// Returns where the driver accesses `bytes` at a pointer; null if the pointer breaks a rule.
uint8_t* place(Call& call, const void* pointer, size_t bytes, bool is_device, const char* which) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  Memory& memory = call.device->memory;
  if (memory.contains(address) != is_device) {
    state().error("copy",
                  call.function() + ": the " + which + " is not on the side that `kind` names");
    return nullptr;
  }
  if (!is_device) return static_cast<uint8_t*>(const_cast<void*>(pointer));
  if (memory.find(address, bytes) != nullptr) return memory.view(address);
  state().error("bounds", call.function() + ": " + std::to_string(bytes) + " bytes at the " +
                              which + " are not inside one live block");
  return nullptr;
}

// A copy that has been checked; `to` and `from` are where the driver accesses it.
struct Copy {
  uint8_t* to;
  const uint8_t* from;
  size_t bytes;
};

Code check_copy(Call& call, void* target, size_t capacity, const void* source, size_t bytes,
                int32_t kind, Copy* checked) {
  if (kind < kHostToHost || kind > kDeviceToDevice || bytes == 0 || bytes > capacity) {
    state().error("copy", "aclrtMemcpy of " + std::to_string(bytes) + " bytes into " +
                              std::to_string(capacity) + ", kind " + std::to_string(kind));
    return kInvalidParameter;
  }
  uint8_t* to = place(call, target, capacity, is_on_device(kind, true), "target");
  uint8_t* from = place(call, source, bytes, is_on_device(kind, false), "source");
  if (to == nullptr || from == nullptr) return kInvalidParameter;
  if (is_on_device(kind, true)) {
    call.device->memory.find(reinterpret_cast<uint64_t>(target), bytes)->is_written = true;
  }
  *checked = {to, from, bytes};
  return 0;
}

// Copies after the time of the setting `async_copy_ms`.
Code copy_later(Call& call, Stream& stream, const Copy& copy) {
  const Code late = call.take_late();
  const auto time = std::chrono::milliseconds(state().settings.async_copy_ms);
  auto work = [copy, late, time](const std::atomic<int>& stop) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (stop == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (late == 0 && stop == 0) std::memmove(copy.to, copy.from, copy.bytes);
    return late;
  };
  stream.add({std::move(work), false});
  return 0;
}

Code free_block(Call& call, void* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  Memory& memory = call.device->memory;
  if (memory.free(address)) return 0;
  if (memory.was_freed(address)) {
    state().error("double free", "aclrtFree of a block that was freed before");
  } else {
    state().error("handle", "aclrtFree of an address that is not the base of a block");
  }
  return kInvalidParameter;
}

}  // namespace

}  // namespace pto::fake

using namespace pto::fake;
using namespace pto::a2a3::cann;

extern "C" {

Code aclInit(const char*) {
  return enter("aclInit", Needs::kNothing, [](Call&) {
    if (state().is_initialised) return kRepeatedInit;
    state().is_initialised = true;
    return 0;
  });
}

const char* aclGetRecentErrMsg() {
  const std::string& message = this_thread().message;
  return message.empty() ? nullptr : message.c_str();
}

Code aclsysGetCANNVersion(int32_t package, PackageVersion* version) {
  return enter("aclsysGetCANNVersion", Needs::kNothing, [&](Call&) {
    if (package != kPackageCann || version == nullptr) return kInvalidParameter;
    *version = {};
    std::strncpy(version->version, state().settings.version.c_str(), sizeof version->version - 1);
    return 0;
  });
}

const char* aclrtGetSocName() {
  static thread_local std::string name;
  const Code code = enter("aclrtGetSocName", Needs::kInit, [](Call&) {
    name = state().settings.soc;
    return 0;
  });
  return code == 0 ? name.c_str() : nullptr;
}

Code aclrtGetDeviceCount(uint32_t* count) {
  return enter("aclrtGetDeviceCount", Needs::kInit, [&](Call&) {
    *count = static_cast<uint32_t>(state().visible().size());
    return 0;
  });
}

Code aclrtSetDevice(int32_t number) {
  return enter("aclrtSetDevice", Needs::kInit, [&](Call&) {
    Device* device = state().logical(number);
    if (device == nullptr) return kInvalidDevice;
    if (device->context == nullptr) {
      device->context = state().add(std::make_shared<Context>(*device));
      start_chip(*device);
    }
    ++device->references;
    this_thread().context = device->context;
    return 0;
  });
}

Code aclrtGetCurrentContext(Handle* context) {
  return enter("aclrtGetCurrentContext", Needs::kDevice, [&](Call&) {
    *context = this_thread().context;
    return 0;
  });
}

Code aclrtSetCurrentContext(Handle context) {
  return enter("aclrtSetCurrentContext", Needs::kInit, [&](Call&) {
    const auto found = state().objects.find(context);
    if (found == state().objects.end() || found->second->kind != Context::kName) {
      state().error("handle",
                    "aclrtSetCurrentContext received a handle that is not a live context");
      return kInvalidHandle;
    }
    this_thread().context = context;
    return 0;
  });
}

Code aclrtResetDevice(int32_t number) {
  return enter("aclrtResetDevice", Needs::kInit,
               [&](Call& call) { return reset_device(call, number, false); });
}

Code aclrtResetDeviceForce(int32_t number) {
  return enter("aclrtResetDeviceForce", Needs::kInit,
               [&](Call& call) { return reset_device(call, number, true); });
}

Code aclrtSetOpExecuteTimeOutV2(uint64_t limit_us, uint64_t* actual_us) {
  return enter("aclrtSetOpExecuteTimeOutV2", Needs::kDevice, [&](Call& call) {
    if (actual_us == nullptr) return kInvalidParameter;
    // 0 asks for the maximum: a kernel that does not return would hold the card for as long.
    if (limit_us == 0) state().error("timeout", "the limit of an operation must be finite");
    *actual_us = limit_us;
    call.device->operation_timeout_ms = limit_us / 1000;
    return 0;
  });
}

Code aclrtMalloc(void** pointer, size_t bytes, int32_t policy) {
  return enter("aclrtMalloc", Needs::kHealthyDevice, [&](Call& call) {
    if (bytes == 0 || policy < kHugeFirst || policy > kNormalOnly) return kInvalidParameter;
    const uint64_t address = call.device->memory.allocate(bytes);
    *pointer = reinterpret_cast<void*>(address);
    return address != 0 ? 0 : kAllocationFailed;
  });
}

Code aclrtFree(void* pointer) {
  return enter("aclrtFree", Needs::kHealthyDevice,
               [&](Call& call) { return free_block(call, pointer); });
}

Code aclrtMemcpy(void* target, size_t capacity, const void* source, size_t bytes, int32_t kind) {
  return enter("aclrtMemcpy", kind == kDeviceToHost ? Needs::kMemory : Needs::kHealthyDevice,
               [&](Call& call) {
                 Copy checked = {};
                 const Code code =
                     check_copy(call, target, capacity, source, bytes, kind, &checked);
                 if (code == 0) std::memmove(checked.to, checked.from, checked.bytes);
                 return code;
               });
}

// The plugin does not call it; other programs in the process do.
Code aclrtMemcpyAsync(void* target, size_t capacity, const void* source, size_t bytes, int32_t kind,
                      Handle handle) {
  return enter("aclrtMemcpyAsync", Needs::kHealthyDevice, [&](Call& call) {
    const auto stream = state().get<Stream>(handle, *call.device, call.name);
    if (stream == nullptr) return kInvalidHandle;
    Copy checked = {};
    const Code code = check_copy(call, target, capacity, source, bytes, kind, &checked);
    return code != 0 ? code : copy_later(call, *stream, checked);
  });
}

Code aclrtMemset(void* target, size_t capacity, int32_t value, size_t bytes) {
  return enter("aclrtMemset", Needs::kHealthyDevice, [&](Call& call) {
    if (bytes == 0 || bytes > capacity) return kInvalidParameter;
    uint8_t* to = place(call, target, capacity, true, "target");
    if (to == nullptr) return kInvalidParameter;
    call.device->memory.find(reinterpret_cast<uint64_t>(target), bytes)->is_written = true;
    std::memset(to, value, bytes);
    return 0;
  });
}

Code aclrtGetMemInfo(int32_t attribute, size_t* unused, size_t* total) {
  return enter("aclrtGetMemInfo", Needs::kHealthyDevice, [&](Call& call) {
    if (attribute != kHbmMemory) return kInvalidParameter;
    *unused = call.device->memory.free_bytes();
    *total = call.device->memory.bytes();
    return 0;
  });
}

Code aclrtCreateStream(Handle* stream) {
  return enter("aclrtCreateStream", Needs::kHealthyDevice, [&](Call& call) {
    if (call.device->objects.size() > state().settings.streams) return kNoStreamLeft;
    *stream = state().add(std::make_shared<Stream>(*call.device, state().next_stream++));
    return 0;
  });
}

Code aclrtDestroyStream(Handle handle) {
  return enter("aclrtDestroyStream", Needs::kHealthyDevice, [&](Call& call) {
    const auto stream = state().get<Stream>(handle, *call.device, call.name);
    if (stream == nullptr) return kInvalidHandle;
    if (!stream->is_idle()) {
      state().error("stream", "aclrtDestroyStream of a stream that is not idle");
      return kInvalidParameter;
    }
    call.released.push_back(state().remove(handle));
    return 0;
  });
}

Code aclrtStreamQuery(Handle handle, int32_t* status) {
  return enter("aclrtStreamQuery", Needs::kDevice, [&](Call& call) {
    const auto stream = state().get<Stream>(handle, *call.device, call.name);
    if (stream == nullptr) return kInvalidHandle;
    *status = stream->is_idle() ? kStreamComplete : kStreamNotReady;
    return stream->is_idle() ? stream->take_failure() : 0;
  });
}

Code aclrtSynchronizeStreamWithTimeout(Handle handle, int32_t limit_ms) {
  return enter("aclrtSynchronizeStreamWithTimeout", Needs::kDevice, [&](Call& call) {
    const auto stream = state().get<Stream>(handle, *call.device, call.name);
    if (stream == nullptr) return kInvalidHandle;
    if (limit_ms < -1) return kInvalidParameter;
    call.released.push_back(stream);
    if (!stream->wait(call.lock, limit_ms)) return kWaitTimeout;
    const Code code = stream->take_failure();
    if (code == 0) call.device->needs_probe = false;
    return code;
  });
}

Code aclrtSynchronizeDeviceWithTimeout(int32_t limit_ms) {
  return enter("aclrtSynchronizeDeviceWithTimeout", Needs::kDevice, [&](Call& call) {
    if (limit_ms <= 0) return kInvalidParameter;  // -1 waits for ever
    Device& device = *call.device;
    device.is_synchronised = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    const auto is_done = [&device] { return device.poison != 0 || !has_work(device); };
    if (!state().changed.wait_until(call.lock, end, is_done)) return kWaitTimeout;
    return device.poison;
  });
}

Code aclrtGetStreamResLimit(Handle handle, int32_t type, uint32_t* cores) {
  return enter("aclrtGetStreamResLimit", Needs::kHealthyDevice, [&](Call& call) {
    if (state().get<Stream>(handle, *call.device, call.name) == nullptr) return kInvalidHandle;
    if (type != kCubeCores && type != kVectorCores) return kInvalidParameter;
    const bool is_cube = type == kCubeCores;
    const Settings& limits = state().settings;
    *cores = std::min(call.device->blocks() * (is_cube ? 1 : 2),
                      is_cube ? limits.cubes : limits.vectors);
    return 0;
  });
}

}  // extern "C"
