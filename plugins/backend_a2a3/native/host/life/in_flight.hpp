// The tasks that were on the cores when a run lost its device.
#pragma once

#include "abi/launch.h"
#include "life/session.hpp"

namespace pto::a2a3 {

// Adds the tasks in flight to the message of a failure; the blocks are copies of the host. If there
// is one task, and a failed kernel can be the cause, the members of the failure name it.
void add_in_flight(const pto_a2a3_progress& progress, const pto_a2a3_cores& cores,
                   pto_error& failure);

// The same with the blocks at these device addresses, if the driver still copies memory.
void name_in_flight(Session& session, uint64_t progress, uint64_t cores, pto_error& failure);

}  // namespace pto::a2a3
