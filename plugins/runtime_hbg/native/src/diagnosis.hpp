// Why a run cannot go on, and how far it is, in words.
#pragma once

#include "graph.hpp"
#include "scheduler.hpp"

namespace pto::build_graph {

// Latches the error of a cycle among the tasks that have not completed, if there is one. Nobody
// else may use the graph meanwhile, and none of these tasks may be in a ready queue: the search
// keeps its marks in their link and time stamps.
bool latch_cycle(Context& context, const Graph& graph);

// Latches the error of a run that left tasks unpublished.
void latch_unpublished(Context& context, const Graph& graph);

// One or two sentences on a run; any thread. Gives the length.
size_t explain(const Graph& graph, const Scheduler& scheduler, const char* variant_name, char* out,
               size_t capacity);

}  // namespace pto::build_graph
