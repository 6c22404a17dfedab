// The ends of a Python transport, adapted to the function table of a native transport.
//
// An end acquires the GIL for each call, keeps the Python object until it is closed, and rings the
// doorbell of the other side, because Python transports do not ring it. The exception
// EndpointClosedError of the object becomes PTO_ENDPOINT_CLOSED; any other exception becomes
// PTO_ENDPOINT_PROTOCOL with its message. The latter is permanent: the end is not called again. A
// frame that is too large only fails its call.
//
// An exception of a signal handler inside a call is treated as an error of the end. In the parent,
// the driver defers the handlers of SIGINT, SIGTERM and SIGHUP during a call.
#pragma once

#include <nanobind/nanobind.h>

#include "pto/abi/endpoint.h"

namespace pto::worker {

// The members memory_needed, open_parent and open_child of the table are NULL.
const pto_transport_api& python_transport();

// Call with the GIL held. `queue_bytes` is the size of the largest frame.
pto_parent_end* open_python_parent(nanobind::object end, pto_bell* child_bell,
                                   uint32_t queue_bytes);
pto_child_end* open_python_child(nanobind::object end, pto_bell* parent_bell, uint32_t queue_bytes);

}  // namespace pto::worker
