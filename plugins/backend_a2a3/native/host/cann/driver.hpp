// The loaded libraries of CANN and its driver, and the check of every call.
//
// A Driver exists once in a process and is never unloaded: CANN does not support a second load.
// Any thread may call it. Calls that use a device need a thread that selected it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "codes.hpp"
#include "functions.hpp"
#include "pto/abi/status.h"

namespace pto::a2a3::cann {

// A release of CANN; 0.0 is unknown.
struct Version {
  int32_t major = 0;
  int32_t minor = 0;
  auto operator<=>(const Version&) const = default;
};

// Reads "8.1", "8.1.RC1" or "9.1.0". Returns 0.0 for other texts.
Version read_version(std::string_view text) noexcept;

struct DriverOptions {
  std::string folder;    // of the libraries; empty: the search path of the loader
  std::string version;   // replaces the version that CANN reports
  bool is_fake = false;  // use the fake driver of the tests, and no other
};

class CannDriver {
 public:
  CannDriver() = default;
  CannDriver(const CannDriver&) = delete;
  CannDriver& operator=(const CannDriver&) = delete;

  // Loads the libraries and initialises CANN. On error nothing can be called.
  pto_status load(const DriverOptions& options, pto_error* error);

  const Functions& functions() const noexcept { return functions_; }
  Version version() const noexcept { return version_; }
  // Returns "device", or "fake device" for the fake driver of the tests.
  const char* label() const noexcept { return is_fake_ ? "fake device" : "device"; }
  bool is_fake() const noexcept { return is_fake_; }
  // Returns the file of the loaded library that has a function.
  const char* path_of(const char* function) const;

  // Refuses a process that was forked after the load, and a chip that is no Ascend A2 or A3. Call
  // it on a thread that selected a device.
  pto_status check_process(pto_error* error) const;
  pto_status check_chip(pto_error* error) const;

  // Calls a function and checks its code. Returns PTO_ERROR_UNSUPPORTED if the library does not
  // have the function.
  template <class... Parameters, class... Arguments>
  pto_status call(pto_error* error, const Function<Code(Parameters...)>& function,
                  Arguments&&... arguments) const {
    if (function.address == nullptr) return fail_absent(function.name, error);
    return check(function.name, function(std::forward<Arguments>(arguments)...), error);
  }

  // Converts a code to a status. The message names the function, the code, the vendor's message,
  // the usual meaning and what to do; function and code are also in the error. Call it on the
  // thread of the failed call, before any other call. `advice` replaces the advice of the table.
  pto_status check(const char* function, Code code, pto_error* error,
                   const char* advice = nullptr) const;

  // The same for functions of the HAL, whose codes have no public list.
  pto_status check_hal(const char* function, Code code, uint32_t device, pto_error* error) const;

 private:
  pto_status open_libraries(const DriverOptions& options, pto_error* error);
  pto_status find_functions(pto_error* error);
  pto_status read_release(const DriverOptions& options, pto_error* error);
  pto_status fail_absent(const char* function, pto_error* error) const;
  std::string vendor_message() const;

  Functions functions_;
  void* libraries_[3] = {};  // in the order of Library
  Version version_;
  bool is_fake_ = false;
  int32_t process_ = 0;  // that loaded the libraries
};

// The names of the entry through which CANN runs our first library on the AICPU.
//
// They belong to a CANN release, not to its public interface, so they are data. Settings replace
// them for a release that this table does not know.
struct BootstrapNames {
  std::string operation;  // name of the operation
  std::string kernel;     // function that CANN's library runs for it
  std::string library;    // CANN's library on the AICPU
};

// Sets a name if `key` is bootstrap_operation, bootstrap_kernel or bootstrap_library. Returns
// whether it is one of them.
bool read_bootstrap(std::string_view key, std::string_view value, BootstrapNames& names);

// Returns the names for a release. A non-empty member of `replaced` replaces that of the table; if
// all are given, any release is accepted.
pto_status find_bootstrap(Version version, const BootstrapNames& replaced, BootstrapNames* names,
                          pto_error* error);

// The numbers of devices: the logical number counts the visible devices from 0; the driver has its
// own. Only calls of the HAL take the number of the driver.
//
// Returns the driver's number of logical device `device`. `visible` is the value of
// ASCEND_RT_VISIBLE_DEVICES: ascending numbers separated by commas, without spaces; empty: all
// devices are visible.
pto_status find_driver_device(std::string_view visible, int32_t device, uint32_t* driver_device,
                              pto_error* error);

}  // namespace pto::a2a3::cann
