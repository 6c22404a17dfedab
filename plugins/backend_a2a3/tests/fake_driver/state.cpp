#include "state.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pto::fake {

namespace {

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Returns whether the memory of a device can still be read after a failure.
bool has_memory(Code failure) {
  using a2a3::cann::Cause;
  const a2a3::cann::CodeEntry* entry = a2a3::cann::find_code(failure);
  const Cause cause = entry != nullptr ? entry->cause : Cause::kUnknown;
  return cause == Cause::kKernel || cause == Cause::kAicpu || cause == Cause::kTimeout;
}

}  // namespace

State& state() {
  static State* const only = new State;  // never deleted: threads of streams may still run
  return *only;
}

Thread& this_thread() {
  static thread_local Thread thread;
  return thread;
}

State::State() {
  if (!settings.read(environment("PTO_FAKE_DRIVER"))) {
    std::fprintf(stderr, "PTO_FAKE_DRIVER: unknown setting in \"%s\"\n",
                 environment("PTO_FAKE_DRIVER"));
    std::abort();
  }
  random.seed(settings.seed);
}

std::vector<uint32_t> State::visible() const {
  std::vector<uint32_t> numbers;
  const std::string_view text = environment("ASCEND_RT_VISIBLE_DEVICES");
  if (text.empty()) {
    for (uint32_t number = 0; number < settings.devices; ++number) numbers.push_back(number);
    return numbers;
  }
  const char* next = text.data();
  const char* end = text.data() + text.size();
  for (;;) {
    uint32_t number = 0;
    const auto read = std::from_chars(next, end, number);
    const bool is_ascending = numbers.empty() || number > numbers.back();
    if (read.ec != std::errc() || number >= settings.devices || !is_ascending) return numbers;
    numbers.push_back(number);
    if (read.ptr == end || *read.ptr != ',') return numbers;
    next = read.ptr + 1;
  }
}

Device* State::logical(int32_t number) {
  const std::vector<uint32_t> numbers = visible();
  if (number < 0 || static_cast<size_t>(number) >= numbers.size()) return nullptr;
  return &open(numbers[static_cast<size_t>(number)]);
}

Device& State::open(uint32_t driver_number) {
  auto& device = devices[driver_number];
  if (device == nullptr) {
    device = std::make_unique<Device>(driver_number, settings.memory_mib << 20);
    device->operation_timeout_ms = settings.operation_timeout_ms;
  }
  return *device;
}

Handle State::add(std::shared_ptr<Object> object) {
  // The numbers are odd and below the first page, so no use as an address goes unnoticed.
  const Handle handle = reinterpret_cast<Handle>(uintptr_t{2 * next_handle++ + 1});
  object->device.objects.insert(handle);
  objects[handle] = std::move(object);
  return handle;
}

std::shared_ptr<Object> State::remove(Handle handle) {
  const auto found = objects.find(handle);
  std::shared_ptr<Object> object = std::move(found->second);
  object->device.objects.erase(handle);
  objects.erase(found);
  return object;
}

void State::error(const char* rule, const std::string& text) {
  find_problem("error: ", rule, text);
}

void State::warn(const char* rule, const std::string& text) {
  find_problem("warning: ", rule, text);
}

void State::find_problem(const char* level, const char* rule, const std::string& text) {
  findings.push_back(std::string(level) + rule + ": " + text);
}

void State::poison(Device& device, Code code) {
  if (device.poison == 0) device.poison = code;
}

void State::reset() {
  // These are destroyed after the mutex is released: a stream joins its thread, which needs the
  // mutex.
  std::map<Handle, std::shared_ptr<Object>> old_objects;
  std::map<uint32_t, std::unique_ptr<Device>> old_devices;
  {
    const std::lock_guard lock(mutex);
    for (auto& [number, device] : devices) device->objects.clear();
    old_objects.swap(objects);
    old_devices.swap(devices);
    is_initialised = false;
    calls.clear();
    failures.clear();
    findings.clear();
    inner_library.clear();
    random.seed(settings.seed);
    next_stream = 0;
  }
  old_objects.clear();
}

Call::Call(const char* name) : name(name), lock(state().mutex) {
  ++state().calls[name];
}

Code Call::begin(Needs needs) {
  if (const Code code = planned(); code != 0) return code;
  if (needs == Needs::kNothing) return 0;
  if (!state().is_initialised) {
    state().error("init", function() + " was called before aclInit");
    return 100001;
  }
  return needs == Needs::kInit ? 0 : find_device(needs);
}

Code Call::planned() {
  std::vector<Failure>& failures = state().failures;
  for (auto failure = failures.begin(); failure != failures.end(); ++failure) {
    if (failure->function != name || --failure->nth > 0) continue;
    const Failure chosen = *failure;
    failures.erase(failure);
    if (chosen.is_late) {
      late = chosen.code;
      return 0;
    }
    const auto found = state().objects.find(this_thread().context);
    const bool has_device = found != state().objects.end();
    if (has_device && a2a3::cann::is_poison(chosen.code)) {
      device = &found->second->device;
      state().poison(*device, chosen.code);
    }
    return chosen.code;
  }
  return 0;
}

Code Call::find_device(Needs needs) {
  const auto found = state().objects.find(this_thread().context);
  if (found == state().objects.end()) {
    state().error("context", function() + " was called on a thread without a context");
    return kNoContext;
  }
  device = &found->second->device;
  if (needs == Needs::kDevice || device->poison == 0) return 0;
  // A host that has seen no failure yet breaks no rule.
  if (!device->is_poison_reported) return kCascade;
  if (needs == Needs::kMemory) return has_memory(device->poison) ? 0 : kCascade;
  state().error("poison", function() + " was called after failure " +
                              std::to_string(device->poison) + " and before a forced reset");
  return kCascade;
}

Code Call::take_late() {
  const Code code = late;
  late = 0;
  return code;
}

Code Call::end(Code code) {
  std::string& message = this_thread().message;
  message.clear();
  if (code == 0) return code;
  if (device != nullptr && device->poison != 0) device->is_poison_reported = true;
  const a2a3::cann::CodeEntry* entry = a2a3::cann::find_code(code);
  message = function() + ": EE" + std::to_string(code) +
            (entry != nullptr ? std::string(" ") + entry->meaning : "");
  return code;
}

}  // namespace pto::fake
