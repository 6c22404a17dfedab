#include "control.h"

#include <cstring>

#include "stream.hpp"

using namespace pto::fake;

namespace pto::fake {

namespace {

std::vector<std::string> list_findings() {
  std::vector<std::string> lines = state().findings;
  for (auto& [number, device] : state().devices) {
    device->memory.check_red_zones();
    const auto& overruns = device->memory.overruns();
    lines.insert(lines.end(), overruns.begin(), overruns.end());
    device->memory.list_leaks(lines);
    for (const Handle handle : device->objects) {
      const Object& object = *state().objects.at(handle);
      if (object.must_be_released) {
        lines.push_back(std::string("leak: ") + object.kind);
      }
    }
    if (device->references > 0) {
      lines.push_back("leak: device " + std::to_string(number) + " was selected " +
                      std::to_string(device->references) + " times more than it was reset");
    }
  }
  return lines;
}

}  // namespace

}  // namespace pto::fake

extern "C" {

extern const char pto_fake_driver_marker[];
const char pto_fake_driver_marker[] = "fake device";

int pto_fake_configure(const char* settings) {
  const std::lock_guard lock(state().mutex);
  Settings changed = state().settings;
  if (!changed.read(settings)) return -1;
  state().settings = changed;
  state().random.seed(changed.seed);
  return 0;
}

void pto_fake_fail(const char* function, uint32_t nth, int32_t code, int is_late) {
  const std::lock_guard lock(state().mutex);
  state().failures.push_back({function, nth, code, is_late != 0});
}

uint64_t pto_fake_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().calls.find(function);
  return found == state().calls.end() ? 0 : found->second;
}

uint32_t pto_fake_findings(char* text, size_t capacity) {
  const std::lock_guard lock(state().mutex);
  std::string all;
  const std::vector<std::string> lines = list_findings();
  for (const std::string& line : lines) all += line + "\n";
  if (capacity > 0) {
    const size_t length = std::min(capacity - 1, all.size());
    std::memcpy(text, all.data(), length);
    text[length] = 0;
  }
  return static_cast<uint32_t>(lines.size());
}

void pto_fake_reset(void) {
  state().reset();
}

void pto_fake_set_program(pto_fake_program program, void* context) {
  const std::lock_guard lock(state().mutex);
  state().program = {program, context};
}

int32_t pto_fake_process(uint32_t device) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().devices.find(device);
  const bool has_chip = found != state().devices.end() && found->second->chip != nullptr;
  return has_chip ? static_cast<int32_t>(found->second->chip->info().pid) : 0;
}

void* pto_fake_view(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(state().mutex);
  for (auto& [number, device] : state().devices) {
    if (device->memory.find(address, bytes) != nullptr) return device->memory.view(address);
  }
  return nullptr;
}

}  // extern "C"
