#include "codes.hpp"

#include <algorithm>
#include <iterator>

namespace pto::a2a3::cann {

namespace {

constexpr const char* kReport =
    "This is a defect of the plugin, or this CANN release differs from the known ones: report the "
    "message and the CANN version";
constexpr const char* kVisible =
    "Choose a smaller device number, or correct ASCEND_RT_VISIBLE_DEVICES; `npu-smi info` lists "
    "the devices of the machine";
constexpr const char* kSmaller =
    "Run a smaller case, or end other processes that use the device (`npu-smi info` lists them)";
constexpr const char* kObjects =
    "Close other devices and processes that use the card; a device has 1984 streams";
constexpr const char* kKernel =
    "Run the case on the simulator with checks (--set sim.check=1) to find the kernel's fault";
constexpr const char* kTooLong =
    "Find the kernel that does not return with the simulator and --timeout. The plugin sets the "
    "limit of the card to its maximum";
constexpr const char* kFirst = "The cause is the first failure; look for it in this message";
constexpr const char* kReset =
    "Open the device again. If that fails, check the card with `npu-smi info` and reset it";
constexpr const char* kStatusBlock =
    "The record that the device wrote names the cause, if the device could write it";
constexpr const char* kUpgrade = "Install a driver that belongs to this CANN release";
constexpr const char* kLoad = "Check that the device library was built for this CANN release";

constexpr CodeEntry kTable[] = {
    {100000, Cause::kBinding, PTO_ERROR_INTERNAL, false, "invalid parameter", kReport},
    {100001, Cause::kBinding, PTO_ERROR_INTERNAL, false, "CANN is not initialised", kReport},
    {100002, Cause::kBinding, PTO_OK, false, "CANN was initialised before", ""},
    {100037, Cause::kBinding, PTO_OK, false, "CANN was finalised before", ""},
    {100039, Cause::kEnvironment, PTO_ERROR_LOAD, false, "the library is a link stub without code",
     "Remove the devlib folder of the toolkit from LD_LIBRARY_PATH and source its set_env.sh"},
    {107000, Cause::kBinding, PTO_ERROR_INTERNAL, false, "invalid parameter", kReport},
    {107001, Cause::kEnvironment, PTO_ERROR_USAGE, false, "invalid device number", kVisible},
    {107002, Cause::kBinding, PTO_ERROR_INTERNAL, false, "the thread has no context", kReport},
    {107003, Cause::kBinding, PTO_ERROR_INTERNAL, false, "the stream has another context", kReport},
    {107017, Cause::kBinding, PTO_ERROR_INTERNAL, false, "invalid handle", kReport},
    {107019, Cause::kTimeout, PTO_ERROR_TIMEOUT, false, "a wait timed out", kTooLong},
    {107020, Cause::kTimeout, PTO_ERROR_TIMEOUT, false, "a task timed out", kTooLong},
    {107022, Cause::kCascade, PTO_ERROR_LOST, true, "tasks of the device are being aborted",
     kFirst},
    {200000, Cause::kMemory, PTO_ERROR_MEMORY, false, "host memory is exhausted",
     "Use a machine with more memory"},
    {207000, Cause::kUnsupported, PTO_ERROR_UNSUPPORTED, false, "unsupported feature", kUpgrade},
    {207001, Cause::kMemory, PTO_ERROR_MEMORY, false,
     "an allocation failed: device memory, or the memory of a module, kernel or stream", kSmaller},
    {207004, Cause::kEnvironment, PTO_ERROR_LOAD, false, "no device",
     "Check that `npu-smi info` lists a device and that this user may open /dev/davinci*"},
    {207005, Cause::kResource, PTO_ERROR_CAPACITY, false, "a resource is exhausted", kObjects},
    {207008, Cause::kResource, PTO_ERROR_CAPACITY, false, "no stream is left", kObjects},
    {207018, Cause::kMemory, PTO_ERROR_MEMORY, false, "device memory is exhausted", kSmaller},
    {507000, Cause::kLost, PTO_ERROR_LOST, true, "internal error of the CANN runtime", kReset},
    {507004, Cause::kBinding, PTO_PENDING, false, "the stream is not complete", ""},
    {507010, Cause::kLost, PTO_ERROR_LOST, true, "the task scheduler of the device is gone",
     kReset},
    {507011, Cause::kLost, PTO_ERROR_LOST, true, "the execution of a model failed", kReset},
    {507014, Cause::kTimeout, PTO_ERROR_TIMEOUT, true, "an AICore operation timed out", kTooLong},
    {507015, Cause::kKernel, PTO_ERROR_KERNEL, true, "exception on an AICore", kKernel},
    {507016, Cause::kKernel, PTO_ERROR_KERNEL, true, "trap on an AICore", kKernel},
    {507017, Cause::kTimeout, PTO_ERROR_TIMEOUT, true, "an AICPU operation timed out", kTooLong},
    {507018, Cause::kAicpu, PTO_ERROR_LOST, true, "exception on the AICPU", kStatusBlock},
    {507027, Cause::kLibrary, PTO_ERROR_LOAD, false, "a kernel was not found", kLoad},
    {507028, Cause::kLibrary, PTO_ERROR_LOAD, false, "a kernel was registered twice", kReport},
    {507034, Cause::kTimeout, PTO_ERROR_TIMEOUT, true, "a vector operation timed out", kTooLong},
    {507035, Cause::kKernel, PTO_ERROR_KERNEL, true, "exception on a vector core", kKernel},
    {507036, Cause::kKernel, PTO_ERROR_KERNEL, true, "trap on a vector core", kKernel},
    {507042, Cause::kKernel, PTO_ERROR_KERNEL, true, "read overflow on an AICore", kKernel},
    {507043, Cause::kKernel, PTO_ERROR_KERNEL, true, "write overflow on an AICore", kKernel},
    {507044, Cause::kKernel, PTO_ERROR_KERNEL, true, "read overflow on a vector core", kKernel},
    {507045, Cause::kKernel, PTO_ERROR_KERNEL, true, "write overflow on a vector core", kKernel},
    {507046, Cause::kTimeout, PTO_ERROR_TIMEOUT, false, "the wait for a stream timed out",
     kTooLong},
    {507047, Cause::kTimeout, PTO_ERROR_TIMEOUT, false, "the wait for an event timed out",
     kTooLong},
    {507053, Cause::kHardware, PTO_ERROR_LOST, true, "fault of the device memory", kReset},
    {507054, Cause::kHardware, PTO_ERROR_LOST, true, "multi-bit ECC error of the device memory",
     kReset},
    {507899, Cause::kCascade, PTO_ERROR_LOST, true, "internal error of the driver", kFirst},
    {507900, Cause::kLost, PTO_ERROR_LOST, true, "internal error of the AICPU", kReset},
    {507901, Cause::kLost, PTO_ERROR_LOST, true, "the connection to the AICPU is closed", kReset},
    {507902, Cause::kLost, PTO_ERROR_LOST, true, "the AICPU could not load its information",
     kReset},
};

constexpr bool is_before(const CodeEntry& entry, int32_t code) noexcept {
  return entry.code < code;
}

}  // namespace

const char* name_of(Cause cause) noexcept {
  constexpr const char* kNames[] = {"binding", "environment", "memory",  "resource", "unsupported",
                                    "timeout", "kernel",      "library", "aicpu",    "cascade",
                                    "lost",    "hardware",    "unknown"};
  static_assert(std::size(kNames) == static_cast<size_t>(Cause::kUnknown) + 1);
  return kNames[static_cast<size_t>(cause)];
}

const CodeEntry* find_code(int32_t code) noexcept {
  const CodeEntry* found = std::lower_bound(std::begin(kTable), std::end(kTable), code, is_before);
  return found != std::end(kTable) && found->code == code ? found : nullptr;
}

bool is_poison(int32_t code) noexcept {
  const CodeEntry* entry = find_code(code);
  return entry != nullptr ? entry->is_poison : code >= 500000;
}

const CodeEntry* code_table(uint32_t* count) noexcept {
  *count = std::size(kTable);
  return kTable;
}

}  // namespace pto::a2a3::cann
