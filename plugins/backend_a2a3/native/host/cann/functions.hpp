// The functions of CANN and its driver that the plugin calls, found by name at run time.
//
// The list exists once: the loader, the fake driver and the link stubs of the tests expand it.
// PTO_A2A3_FUNCTIONS(F) calls F(library, need, result, name, parameters) for each function.
// `required`: without it, a toolkit is refused. `optional`: only the call itself fails.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pto::a2a3::cann {

// Our own declarations of the structs and constants of CANN and its driver.
//
// The layouts are those of the vendor's interface, which is the same on x86-64 and AArch64. The
// assertions pin every offset, because a wrong one would reach the card unnoticed.

// All calls return a code; 0 is success. Handles are opaque pointers.
using Code = int32_t;
using Handle = void*;

inline constexpr Code kSuccess = 0;
inline constexpr Code kRepeatedInit = 100002;
inline constexpr Code kRepeatedFinalize = 100037;
inline constexpr Code kLinkStub = 100039;
inline constexpr Code kStreamNotComplete = 507004;  // rtStreamQuery only

enum CopyKind : int32_t { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice };
enum MemoryPolicy : int32_t { kHugeFirst, kHugeOnly, kNormalOnly };
enum MemoryAttribute : int32_t { kDdrMemory, kHbmMemory };
enum CoreLimit : int32_t { kCubeCores, kVectorCores };
enum StreamStatus : int32_t { kStreamComplete, kStreamNotReady };

// aclsysGetCANNVersion
inline constexpr int32_t kPackageCann = 0;

struct PackageVersion {
  char version[128];
  char major[64];
  char minor[64];
  char release[64];
  char patch[64];
  char reserved[128];
};
static_assert(sizeof(PackageVersion) == 512);
static_assert(offsetof(PackageVersion, major) == 128);
static_assert(offsetof(PackageVersion, minor) == 192);

// A binary for the cores: rtRegisterAllKernel.
inline constexpr uint32_t kMagicAiCore = 0x43554245;  // both halves, cube and vector

struct DeviceBinary {
  uint32_t magic;
  uint32_t version;
  const void* data;
  uint64_t length;
};
static_assert(sizeof(DeviceBinary) == 24);
static_assert(offsetof(DeviceBinary, data) == 8);
static_assert(offsetof(DeviceBinary, length) == 16);

// The arguments of a launch on the cores: rtKernelLaunchWithHandleV2.
struct CoreArguments {
  void* args;
  void* host_input_info;
  uint32_t args_size;
  uint32_t tiling_address_offset;
  uint32_t tiling_data_offset;
  uint16_t host_input_info_num;
  uint8_t has_tiling;
  uint8_t is_no_need_h2d_copy;
  uint8_t reserved[8];  // 4 named bytes, and the padding to the alignment of a pointer
};
static_assert(sizeof(CoreArguments) == 40);
static_assert(offsetof(CoreArguments, host_input_info) == 8);
static_assert(offsetof(CoreArguments, args_size) == 16);
static_assert(offsetof(CoreArguments, tiling_address_offset) == 20);
static_assert(offsetof(CoreArguments, tiling_data_offset) == 24);
static_assert(offsetof(CoreArguments, host_input_info_num) == 28);
static_assert(offsetof(CoreArguments, has_tiling) == 30);
static_assert(offsetof(CoreArguments, is_no_need_h2d_copy) == 31);
static_assert(offsetof(CoreArguments, reserved) == 32);

inline constexpr uint8_t kBatchSchedule = 1;  // all blocks of a launch start together

struct TaskSettings {
  uint8_t qos;
  uint8_t part_id;
  uint8_t schedule_mode;
  uint8_t is_d2d_cross;
  uint32_t block_offset;
  uint8_t dump_flag;
  uint8_t never_timeout;  // 9.1; reserved in 8.1
  uint8_t enable_profiling;
  uint8_t reserved;
  uint32_t local_memory_size;
};
static_assert(sizeof(TaskSettings) == 16);
static_assert(offsetof(TaskSettings, schedule_mode) == 2);
static_assert(offsetof(TaskSettings, block_offset) == 4);
static_assert(offsetof(TaskSettings, dump_flag) == 8);
static_assert(offsetof(TaskSettings, never_timeout) == 9);
static_assert(offsetof(TaskSettings, local_memory_size) == 12);

// The arguments of a launch on the AICPU: rtAicpuKernelLaunchExWithArgs.
inline constexpr uint32_t kAicpuKfc = 5;

struct AicpuArguments {
  void* args;
  void* host_input_info;
  void* kernel_offset_info;
  uint32_t args_size;
  uint16_t host_input_info_num;
  uint16_t kernel_offset_info_num;
  uint32_t so_name_offset;
  uint32_t kernel_name_offset;
  bool is_no_need_h2d_copy;
  uint16_t timeout;
  uint8_t reserved[4];
};
static_assert(sizeof(AicpuArguments) == 48);
static_assert(offsetof(AicpuArguments, kernel_offset_info) == 16);
static_assert(offsetof(AicpuArguments, args_size) == 24);
static_assert(offsetof(AicpuArguments, host_input_info_num) == 28);
static_assert(offsetof(AicpuArguments, kernel_offset_info_num) == 30);
static_assert(offsetof(AicpuArguments, so_name_offset) == 32);
static_assert(offsetof(AicpuArguments, kernel_name_offset) == 36);
static_assert(offsetof(AicpuArguments, is_no_need_h2d_copy) == 40);
static_assert(offsetof(AicpuArguments, timeout) == 42);
static_assert(offsetof(AicpuArguments, reserved) == 44);

struct CpuArguments {  // rtsLaunchCpuKernel
  AicpuArguments base;
  size_t parameter_head_offset;
  uint32_t reserved[4];
};
static_assert(sizeof(CpuArguments) == 72);
static_assert(offsetof(CpuArguments, parameter_head_offset) == 48);
static_assert(offsetof(CpuArguments, reserved) == 56);

inline constexpr int32_t kLoadCpuKernelMode = 3;
inline constexpr uint32_t kCpuKernelDescriptionOnly = 0;  // the library is on the device already

struct LoadOption {
  int32_t id;
  uint32_t value[4];  // a union of 16 bytes
};
static_assert(sizeof(LoadOption) == 20);
static_assert(offsetof(LoadOption, value) == 4);

struct LoadSettings {
  const LoadOption* options;
  size_t num_options;
};
static_assert(sizeof(LoadSettings) == 16);
static_assert(offsetof(LoadSettings, num_options) == 8);

// The HAL of the driver.
inline constexpr int32_t kHalAddressMap = 0;  // halMemCtl
inline constexpr uint32_t kHalCoreRegisters = 2;
inline constexpr Code kHalNoSuchQuery = 3;
inline constexpr Code kHalTryAgain = 13;
inline constexpr Code kHalWrongDevice = 42;
inline constexpr int32_t kHalModuleAicpu = 1;
inline constexpr int32_t kHalModuleAicore = 4;
inline constexpr int32_t kHalInfoOccupy = 8;

struct HalAddressQuery {
  uint32_t address_type;
  uint32_t device_id;
};
static_assert(sizeof(HalAddressQuery) == 8);

struct HalAddressRange {
  uint64_t address;
  uint64_t bytes;
};
static_assert(sizeof(HalAddressRange) == 16);

// The answer of halGetDeviceInfoByBuff about the cores. The driver refuses another size.
struct HalUnits {
  uint64_t mask;  // a bit for each unit that exists
  uint64_t reserved;
};
static_assert(sizeof(HalUnits) == 16);

}  // namespace pto::a2a3::cann

// clang-format off
#define PTO_A2A3_FUNCTIONS(F)                                                                     \
  F(acl, required, Code, aclInit, (const char*))                                                  \
  F(acl, required, const char*, aclGetRecentErrMsg, ())                                           \
  F(acl, optional, Code, aclsysGetCANNVersion, (int32_t, PackageVersion*))                        \
  F(acl, required, const char*, aclrtGetSocName, ())                                              \
  F(acl, required, Code, aclrtGetDeviceCount, (uint32_t*))                                        \
  F(acl, required, Code, aclrtSetDevice, (int32_t))                                               \
  F(acl, required, Code, aclrtGetCurrentContext, (Handle*))                                       \
  F(acl, required, Code, aclrtSetCurrentContext, (Handle))                                        \
  F(acl, required, Code, aclrtResetDevice, (int32_t))                                             \
  F(acl, required, Code, aclrtResetDeviceForce, (int32_t))                                        \
  F(acl, optional, Code, aclrtSetOpExecuteTimeOutV2, (uint64_t, uint64_t*))                       \
  F(acl, required, Code, aclrtMalloc, (void**, size_t, int32_t))                                  \
  F(acl, required, Code, aclrtFree, (void*))                                                      \
  F(acl, required, Code, aclrtMemcpy, (void*, size_t, const void*, size_t, int32_t))              \
  F(acl, required, Code, aclrtMemset, (void*, size_t, int32_t, size_t))                           \
  F(acl, required, Code, aclrtGetMemInfo, (int32_t, size_t*, size_t*))                            \
  F(acl, required, Code, aclrtCreateStream, (Handle*))                                            \
  F(acl, required, Code, aclrtDestroyStream, (Handle))                                            \
  F(acl, required, Code, aclrtStreamQuery, (Handle, int32_t*))                                    \
  F(acl, required, Code, aclrtSynchronizeStreamWithTimeout, (Handle, int32_t))                    \
  F(acl, optional, Code, aclrtSynchronizeDeviceWithTimeout, (int32_t))                            \
  F(acl, optional, Code, aclrtGetStreamResLimit, (Handle, int32_t, uint32_t*))                    \
  F(runtime, required, Code, rtGetC2cCtrlAddr, (uint64_t*, uint32_t*))                            \
  F(runtime, required, Code, rtRegisterAllKernel, (const DeviceBinary*, Handle*))                 \
  F(runtime, required, Code, rtKernelLaunchWithHandleV2,                                          \
    (Handle, uint64_t, uint32_t, CoreArguments*, void*, Handle, const TaskSettings*))             \
  F(runtime, required, Code, rtAicpuKernelLaunchExWithArgs,                                       \
    (uint32_t, const char*, uint32_t, const AicpuArguments*, void*, Handle, uint32_t))            \
  F(runtime, optional, Code, rtsBinaryLoadFromFile, (const char*, const LoadSettings*, Handle*))  \
  F(runtime, optional, Code, rtsBinaryUnload, (Handle))                                           \
  F(runtime, optional, Code, rtsFuncGetByName, (Handle, const char*, Handle*))                    \
  F(runtime, optional, Code, rtsLaunchCpuKernel,                                                  \
    (Handle, uint32_t, Handle, const void*, CpuArguments*))                                       \
  F(hal, required, Code, halMemCtl, (int32_t, void*, size_t, void*, size_t*))                     \
  F(hal, required, Code, halGetDeviceInfo, (uint32_t, int32_t, int32_t, int64_t*))                \
  F(hal, optional, Code, halGetDeviceInfoByBuff, (uint32_t, int32_t, int32_t, void*, int32_t*))
// clang-format on

namespace pto::a2a3::cann {

template <class Signature>
struct Function;

// One function: its name, for messages, and its address, null if the library does not have it.
template <class Result, class... Parameters>
struct Function<Result(Parameters...)> {
  const char* name;
  Result (*address)(Parameters...) = nullptr;

  Result operator()(Parameters... arguments) const { return address(arguments...); }
};

struct Functions {
#define PTO_A2A3_MEMBER(library, need, result, name, parameters) \
  Function<result parameters> name{#name};
  PTO_A2A3_FUNCTIONS(PTO_A2A3_MEMBER)
#undef PTO_A2A3_MEMBER
};

}  // namespace pto::a2a3::cann
