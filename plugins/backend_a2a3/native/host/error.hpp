#pragma once

#include "pto/engine/error_record.hpp"

namespace pto::a2a3 {

using engine::clear;
using engine::fail;

}  // namespace pto::a2a3
