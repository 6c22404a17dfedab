// The state of the fake driver: devices, contexts, handles, planned failures and findings.
//
// One mutex protects all of it. An exported function enters through `enter`, which records the
// call, applies a planned failure, and checks what the vendor checks before the function itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "answers.hpp"
#include "chip_process.hpp"
#include "codes.hpp"
#include "control.h"
#include "functions.hpp"
#include "memory.hpp"
#include "settings.hpp"

namespace pto::fake {

using a2a3::cann::Handle;

struct Device;

// What a handle stands for. Handles are numbers, so that the host cannot dereference one.
struct Object {
  Object(const char* kind, Device& device, bool must_be_released = false)
      : kind(kind), device(device), must_be_released(must_be_released) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  const char* const kind;
  Device& device;
  const bool must_be_released;  // the host must release it before it resets the device
};

// Addresses of device memory: no process that starts has anything there.
inline constexpr uint64_t kMemory = 0x7e90'0000'0000;
inline constexpr uint64_t kMemoryStride = uint64_t{64} << 30;

inline constexpr uint32_t kMostBlocks = 24;

struct Device {
  Device(uint32_t number, uint64_t bytes)
      : number(number), memory(kMemory + number * kMemoryStride, bytes) {}

  const uint32_t number;  // of the driver, not the logical one
  Memory memory;
  uint32_t references = 0;          // of aclrtSetDevice
  Handle context = nullptr;         // null: not selected, or reset
  std::set<Handle> objects;         // streams and other handles of the context
  Code poison = 0;                  // first failure that needs a forced reset
  bool is_poison_reported = false;  // a call has returned a failure since then
  bool is_synchronised = false;     // as a whole, since the newest launch
  bool needs_probe = false;         // since the forced reset, no stream has completed any work
  uint64_t operation_timeout_ms = 0;
  std::set<uint64_t> core_binaries;   // digests of what rtRegisterAllKernel received
  bool has_core_launch = false;       // since the newest launch on several AICPU threads
  bool has_aicpu_library = false;     // the dispatcher has installed the inner library
  uint32_t registered = 0;            // number of core binaries since the device was selected
  std::shared_ptr<ChipProcess> chip;  // null: there is none

  uint32_t blocks() const { return chip != nullptr ? chip->info().blocks : kMostBlocks; }
};

struct Failure {
  std::string function;
  uint32_t nth;
  Code code;
  bool is_late;
};

struct Program {
  pto_fake_program function = nullptr;
  void* context = nullptr;
};

class State {
 public:
  State();

  std::mutex mutex;
  std::condition_variable changed;  // the work of a stream has progressed
  Settings settings;
  bool is_initialised = false;
  std::map<uint32_t, std::unique_ptr<Device>> devices;  // by the driver's number
  std::map<Handle, std::shared_ptr<Object>> objects;
  std::map<std::string, uint64_t> calls;
  std::vector<Failure> failures;
  std::vector<std::string> findings;
  Program program;
  std::mt19937_64 random;
  uint64_t next_handle = 1;
  uint64_t next_stream = 0;
  std::string inner_library;  // the process runs the first one that it received

  // Lists the driver's numbers of the visible devices, in the order of their logical numbers.
  std::vector<uint32_t> visible() const;
  // Returns a device by its logical number, or null.
  Device* logical(int32_t number);
  Device& open(uint32_t driver_number);

  Handle add(std::shared_ptr<Object> object);
  std::shared_ptr<Object> remove(Handle handle);
  // Returns the object of a live handle of the current device, or null; a wrong one is a finding.
  template <class Kind>
  std::shared_ptr<Kind> get(Handle handle, const Device& device, const char* function);

  void error(const char* rule, const std::string& text);
  void warn(const char* rule, const std::string& text);
  void poison(Device& device, Code code);
  void reset();

 private:
  void find_problem(const char* level, const char* rule, const std::string& text);
};

State& state();

// The context of the calling thread, and the text of its last failure.
struct Thread {
  Handle context = nullptr;
  std::string message;
};
Thread& this_thread();

// The state that a function needs before it starts.
// kMemory: its memory, which can be read after a failure of a kernel or of the AICPU.
enum class Needs { kNothing, kInit, kDevice, kMemory, kHealthyDevice };

// One call of an exported function. It has the mutex.
struct Call {
  explicit Call(const char* name);

  // Returns a code if the call fails before it starts, else 0. Sets `device`.
  Code begin(Needs needs);
  // Takes the planned late failure of this call, or returns 0.
  Code take_late();
  // Ends the call with a code, and records the vendor's text for it.
  Code end(Code code);
  std::string function() const { return name; }

  const char* const name;
  std::vector<std::shared_ptr<Object>> released;  // deleted after the mutex is released
  std::unique_lock<std::mutex> lock;
  Device* device = nullptr;
  Code late = 0;

 private:
  Code planned();
  Code find_device(Needs needs);
};

// Runs `body(call)` with the mutex unless the call fails before.
template <class Body>
Code enter(const char* name, Needs needs, Body body) {
  Call call(name);
  const Code early = call.begin(needs);
  return call.end(early != 0 ? early : body(call));
}

template <class Kind>
std::shared_ptr<Kind> State::get(Handle handle, const Device& device, const char* function) {
  const auto found = objects.find(handle);
  auto object = found == objects.end() ? nullptr : std::dynamic_pointer_cast<Kind>(found->second);
  if (object == nullptr) {
    error("handle", std::string(function) + " received a handle that is not a live " + Kind::kName);
  } else if (&object->device != &device) {
    error("context", std::string(function) + " received a " + Kind::kName + " of another device");
    return nullptr;
  }
  return object;
}

}  // namespace pto::fake
