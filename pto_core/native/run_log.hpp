// The access log of a run, for Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "run.hpp"

namespace pto::core {

// Return the fields of pto_insight.graphs.AccessLog for the run that just ended. The runtime must
// keep a log.
nb::object read_access_log(const Device& device, const RunSettings& settings,
                           const Arguments& arguments,
                           const std::vector<std::shared_ptr<Buffer>>& temporaries,
                           const Measured& measured,
                           const std::function<std::string(int32_t)>& kernel_name);

}  // namespace pto::core
