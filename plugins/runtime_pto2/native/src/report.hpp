// The sentences of a deadlock report. docs/deadlock-reports.md shows them with explanations.
#pragma once

#include "deadlock.hpp"
#include "pto/engine/text.hpp"

namespace pto::ring_buffer {

// "graph.cpp:12", without the folders, or "an unknown line".
void add_place(engine::Text& text, const Place& place);
// "ring 3 (scopes of depth 3 and deeper)".
void add_ring(engine::Text& text, uint32_t ring);

// "the heap of ring 0 (the run, scope depth 0)".
void add_resource(engine::Text& text, Resource resource, uint32_t ring);
const char* unit_of(Resource resource, uint64_t count);
// Whether each ring has one of its own.
bool is_per_ring(Resource resource);

// The line for the log about a wait that is long, in the published form.
void add_blocked(engine::Text& text, const Proof& proof, uint64_t waited_ns);

// Write the exhausted resource with its numbers.
void add_exhausted(engine::Text& text, const Proof& proof);
// Write the cycle of waits, back to its start.
void add_chain(engine::Text& text, const Proof& proof);
// The smallest sizes that suffice, and how to set them.
void add_plan(engine::Text& text, const Proof& proof, const Plan& plan);

// Return the present size of the resource, and the planned size.
uint64_t size_of(const Sizes& sizes, Resource resource, uint32_t ring);

}  // namespace pto::ring_buffer
