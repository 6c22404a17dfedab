// The settings of one device, from the options that open() receives.
#pragma once

#include <cstdint>
#include <string>

#include "cann/driver.hpp"
#include "life/card.hpp"
#include "life/session.hpp"
#include "pto/abi/arguments.h"
#include "pto/abi/platform.h"

namespace pto::a2a3 {

struct Options {
  cann::DriverOptions driver;
  std::string images;                        // folder of the libraries for the device
  std::string dispatcher, device, executor;  // their paths, if there is no folder
  std::string visible;                       // value of ASCEND_RT_VISIBLE_DEVICES
  uint64_t pool_bytes = uint64_t{6} << 30;   // device memory of the variant and its runs
  Limits limits;
  LogSettings log;
  cann::BootstrapNames bootstrap;  // the names that replace those of the CANN release
};

// Returns PTO_ERROR_USAGE for an unknown key or an invalid value.
pto_status parse_options(const pto_option* given, uint32_t count, Options& options,
                         pto_error* error);

}  // namespace pto::a2a3
