// The ends of a transport in plain Python, behind the table of a native one.
//
// An end here takes the GIL for each of its calls, keeps the Python object until it is closed, and
// rings the other side's bell, as Python transports do not. What the object raises becomes
// PTO_ENDPOINT_CLOSED (EndpointClosedError) or PTO_ENDPOINT_PROTOCOL with the words of the error
// (anything else). The latter stays: such an end is not called again. A frame that is too large
// only ends its call.
//
// What the handler of a signal raises in a call is an error of the end like any other. In the
// parent the driver holds the handlers of SIGINT, SIGTERM and SIGHUP back meanwhile.
#pragma once

#include <nanobind/nanobind.h>

#include "pto/abi/endpoint.h"

namespace pto::hierarchy {

// Without memory_needed, open_parent and open_child: those are NULL.
const pto_transport_api& python_transport();

// With the GIL. `queue_bytes` is the largest frame.
pto_parent_end* open_python_parent(nanobind::object end, pto_bell* child_bell,
                                   uint32_t queue_bytes);
pto_child_end* open_python_child(nanobind::object end, pto_bell* parent_bell, uint32_t queue_bytes);

}  // namespace pto::hierarchy
