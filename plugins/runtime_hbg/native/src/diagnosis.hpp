// Texts about a run: why it cannot continue, and its progress.
#pragma once

#include "graph.hpp"
#include "scheduler.hpp"

namespace pto::build_graph {

// Latches the error of a cycle among the tasks that have not completed, if there is one. No other
// thread may use the graph meanwhile, and none of these tasks may be in a ready queue, because the
// search uses their link and time stamps.
bool latch_cycle(Context& context, const Graph& graph);

// Latches an error that states that the run left tasks unpublished.
void latch_unpublished(Context& context, const Graph& graph);

// Writes one or two sentences about a run and returns their length. Any thread may call it.
size_t explain(const Graph& graph, const Scheduler& scheduler, const char* variant_name, char* out,
               size_t capacity);

}  // namespace pto::build_graph
