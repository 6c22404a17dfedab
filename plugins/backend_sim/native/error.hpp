#pragma once

#include "pto/engine/error_record.hpp"

namespace pto::sim {

using engine::clear;
using engine::fail;

}  // namespace pto::sim
