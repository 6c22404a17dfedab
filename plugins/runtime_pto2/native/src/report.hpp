// The sentences of a deadlock report. docs/deadlock-reports.md shows and explains them.
#pragma once

#include "deadlock.hpp"
#include "pto/engine/text.hpp"

namespace pto::ring_buffer {

// Write a source position, for example "graph.cpp:12" (without folders), or "an
// unknown line".
void add_place(engine::Text& text, const CallSite& place);
// Write the name of a ring, for example "ring 3 (scopes of depth 3 and deeper)".
void add_ring(engine::Text& text, uint32_t ring);

// Write the name of a resource, for example "the heap of ring 0 (the run, scope depth 0)".
void add_resource(engine::Text& text, Resource resource, uint32_t ring);
const char* unit_of(Resource resource, uint64_t count);
// Return whether each ring has a separate resource of this kind.
bool is_per_ring(Resource resource);

// Write the log line about a long wait, in the form of the published runtime.
void add_blocked(engine::Text& text, const Proof& proof, uint64_t waited_ns);

// Write the exhausted resource with its numbers.
void add_exhausted(engine::Text& text, const Proof& proof);
// Write the cycle of the orchestrator, tasks and scopes that wait for each other. Its first member
// appears again at the end.
void add_chain(engine::Text& text, const Proof& proof);
// Write the smallest sizes that suffice, and how to set them.
void add_plan(engine::Text& text, const Proof& proof, const Plan& plan);

// A setting with its value, for example "--set pto2.heap=4096, environment PTO2_RING_HEAP=4096".
struct Setting {
  Resource resource;
  uint64_t value;
};
void write(engine::Text& text, const Setting& setting);

// Return the size of the resource in `sizes`.
uint64_t size_of(const Sizes& sizes, Resource resource, uint32_t ring);

}  // namespace pto::ring_buffer
