// The functions of CANN and its driver that the plugin calls, found by name at run time.
//
// The list exists once: the loader, the fake driver and the link stubs of the tests expand it.
// PTO_A2A3_FUNCTIONS(F) calls F(library, need, result, name, parameters) for each function.
// `required`: without it, a toolkit is refused. `optional`: only the call itself fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "types.hpp"

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
