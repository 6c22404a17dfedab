// The ends of a transport in plain Python, behind the table of a native one.
//
// An end takes the GIL for each call, keeps the Python object until it is closed, and rings the
// other side's bell, which Python transports do not do. An exception of the object becomes
// PTO_ENDPOINT_CLOSED (EndpointClosedError) or PTO_ENDPOINT_PROTOCOL with its message (any other).
// The latter is permanent: such an end is not called again. A frame that is too large only ends its
// call.
//
// An exception of a signal handler in a call is an error of the end like any other. In the parent,
// the driver delays the handlers of SIGINT, SIGTERM and SIGHUP meanwhile.
#pragma once

#include <nanobind/nanobind.h>

#include "pto/abi/endpoint.h"

namespace pto::hierarchy {

// The table has no memory_needed, open_parent and open_child: those are NULL.
const pto_transport_api& python_transport();

// With the GIL. `queue_bytes` is the largest frame.
pto_parent_end* open_python_parent(nanobind::object end, pto_bell* child_bell,
                                   uint32_t queue_bytes);
pto_child_end* open_python_child(nanobind::object end, pto_bell* parent_bell, uint32_t queue_bytes);

}  // namespace pto::hierarchy
