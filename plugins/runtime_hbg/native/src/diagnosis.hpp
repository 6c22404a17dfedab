// Texts about a run: why it cannot continue, and its progress.
#pragma once

#include "graph.hpp"
#include "scheduler.hpp"

namespace pto::build_graph {

// Latches an error if the tasks that have not completed contain a cycle. No other thread may use
// the graph meanwhile. None of these tasks may be in a ready queue, because the search overwrites
// their link and time stamps.
bool latch_cycle(Context& context, const Graph& graph);

// Latches an error that lists the tasks that the run did not publish.
void latch_unpublished(Context& context, const Graph& graph);

// Writes one or two sentences about the progress of a run and returns their length. Any thread may
// call it.
size_t explain(const Graph& graph, const Scheduler& scheduler, const char* variant_name, char* out,
               size_t capacity);

}  // namespace pto::build_graph
