// The access log of a captured graph; see pto/abi/access_log.h and pto_insight.graphs.log.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "driver/captures.hpp"
#include "driver/catalogue.hpp"
#include "driver/source_places.hpp"

namespace pto::hierarchy {

// Return the fields of AccessLog. A group is one task. Call with the GIL held and the driver role.
nb::dict captured_log(const CapturedObject& captured, const Catalogue& catalogue,
                      const SourcePlaces& places);

// Return the edges that the capture found, as pairs of indices of tasks: by second, then by first.
std::vector<std::pair<uint32_t, uint32_t>> captured_edges(const CapturedGraph& graph);

}  // namespace pto::hierarchy
