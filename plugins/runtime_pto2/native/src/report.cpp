#include "report.hpp"

#include <cstring>

#include "pto/abi/topology.h"

namespace pto::ring_buffer {

using engine::Text;

namespace {

constexpr size_t kLongestName = 60;

// The texts about a resource. The array has the order of the enumerators of Resource.
struct ResourceNames {
  const char* name;
  const char* unit;
  const char* one;  // the unit in the singular
  const char* key;
  const char* environment;
};

constexpr ResourceNames kResourceNames[kWaits] = {
    {"", "", "", "", ""},
    {"task window", "slots", "slot", "pto2.task_window", "PTO2_RING_TASK_WINDOW"},
    {"heap", "bytes", "byte", "pto2.heap", "PTO2_RING_HEAP"},
    {"dependency pool", "entries", "entry", "pto2.dep_pool", "PTO2_RING_DEP_POOL"},
    {"tensor map pool", "entries", "entry", "pto2.tensor_map_pool", "PTO_PTO2_TENSOR_MAP_POOL"},
    {"block_dim", "blocks", "block", "block_dim", "PTO_BLOCK_DIM"},
    {"", "tasks", "task", "", ""},
};

const ResourceNames& names_of(Resource resource) {
  return kResourceNames[static_cast<uint32_t>(resource)];
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  const char* name = slash == nullptr ? path : slash + 1;
  const size_t length = std::strlen(name);
  return length > kLongestName ? name + length - kLongestName : name;
}

void add_scope(Text& text, const Proof& proof) {
  if (proof.scope_depth == 0) {
    text.add("the run itself (scope depth 0)");
    return;
  }
  text.add("the scope of depth ", proof.scope_depth, " opened at ");
  add_place(text, proof.scope_place);
}

// Write the size in the syntax of its option: one value if it is the same for all rings, otherwise
// one value for each ring.
void add_value(Text& text, const Sizes& sizes, Resource resource) {
  const uint64_t first = size_of(sizes, resource, 0);
  bool is_shared = true;
  for (uint32_t ring = 1; ring < kRings; ++ring) {
    if (size_of(sizes, resource, ring) != first) is_shared = false;
  }
  text.add(first);
  for (uint32_t ring = 1; ring < kRings && !is_shared; ++ring) {
    text.add(",", size_of(sizes, resource, ring));
  }
}

// Write a required size, for example "task window 16 slots (4 is too small for ring 0): --set
// pto2.task_window=16, ...".
void add_size(Text& text, const Sizes& now, const Plan& plan, Resource resource) {
  const ResourceNames& names = names_of(resource);
  text.add(names.name, " ");
  add_value(text, plan.sizes, resource);
  text.add(" ", names.unit, " (");
  add_value(text, now, resource);
  text.add(" is too small");
  if (is_per_ring(resource)) {
    const bool* is_short = plan.is_short[static_cast<uint32_t>(resource)];
    const char* before = " for ring ";
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      if (!is_short[ring]) continue;
      text.add(before, ring);
      before = ", ";
    }
  }
  text.add("): --set ", names.key, "=");
  add_value(text, plan.sizes, resource);
  text.add(", environment ", names.environment, "=");
  add_value(text, plan.sizes, resource);
}

bool is_beyond_devices(const Plan& plan) {
  return plan.is_any_short(Resource::kCluster) && plan.sizes.blocks > PTO_MAX_BLOCKS;
}

void add_too_many_clusters(Text& text, const Plan& plan) {
  text.add("No setting suffices: the run holds ", plan.is_lower_bound ? "at least " : "",
           plan.sizes.blocks, " clusters at once and a device has at most ",
           uint32_t{PTO_MAX_BLOCKS}, "; free clusters earlier, or allocate them in inner scopes.");
}

void add_tasks(Text& text, const Proof& proof) {
  const uint64_t slots = size_of(proof.sizes, Resource::kWindow, proof.blocked.ring) - 1;
  text.add("the task ring of ");
  add_ring(text, proof.blocked.ring);
  text.add(" is full: current=", proof.current, ", last_alive=", proof.last_alive,
           ", active=", proof.used, "/", slots, ", window ", slots + 1, "; ", proof.blocked.needed,
           " ", unit_of(Resource::kWindow, proof.blocked.needed), " wanted");
}

void add_pool(Text& text, const Proof& proof) {
  const Resource resource = proof.blocked.what;
  const uint64_t size = size_of(proof.sizes, resource, proof.blocked.ring);
  const char* unit = names_of(resource).unit;
  add_resource(text, resource, proof.blocked.ring);
  text.add(" has no free space: ", proof.used, " of ", size, " ", unit, " in use by live tasks, ",
           proof.blocked.needed, " ", unit_of(resource, proof.blocked.needed), " wanted");
}

}  // namespace

uint64_t size_of(const Sizes& sizes, Resource resource, uint32_t ring) {
  switch (resource) {
    case Resource::kWindow:
      return sizes.options.task_window[ring];
    case Resource::kHeap:
      return sizes.options.heap[ring];
    case Resource::kEdges:
      return sizes.options.dep_pool[ring];
    case Resource::kTensorMap:
      return sizes.options.tensor_map_pool;
    case Resource::kCluster:
      return sizes.blocks;
    case Resource::kNone:
    case Resource::kTasks:
      break;
  }
  return 0;
}

void add_place(Text& text, const CallSite& place) {
  if (place.file == nullptr) {
    text.add("an unknown line");
  } else {
    text.add(base_name(place.file), ":", place.line);
  }
}

void add_ring(Text& text, uint32_t ring) {
  constexpr const char* kDepths[kRings] = {"the run, scope depth 0", "scopes of depth 1",
                                           "scopes of depth 2", "scopes of depth 3 and deeper"};
  text.add("ring ", ring, " (", kDepths[ring], ")");
}

bool is_per_ring(Resource resource) {
  return resource < Resource::kTensorMap;
}

const char* unit_of(Resource resource, uint64_t count) {
  return count == 1 ? names_of(resource).one : names_of(resource).unit;
}

void add_resource(Text& text, Resource resource, uint32_t ring) {
  constexpr const char* kNames[kWaits] = {"nothing",
                                          "the task ring",
                                          "the heap ring",
                                          "the dependency pool",
                                          "the tensor map's pool",
                                          "the device",
                                          "the run"};
  text.add(kNames[static_cast<uint32_t>(resource)]);
  if (!is_per_ring(resource)) return;
  text.add(" of ");
  add_ring(text, ring);
}

void write(Text& text, const Setting& setting) {
  const ResourceNames& names = names_of(setting.resource);
  text.add("--set ", names.key, "=", setting.value, ", environment ", names.environment, "=",
           setting.value);
}

void add_blocked(Text& text, const Proof& proof, uint64_t waited_ns) {
  constexpr const char* kNames[kWaits] = {"",
                                          "[TaskRing] BLOCKED (Flow Control): ",
                                          "[HeapRing] BLOCKED: ",
                                          "[DependencyPool] BLOCKED: ",
                                          "[TensorMap] BLOCKED: ",
                                          "[Cluster] BLOCKED: ",
                                          "[TensorData] BLOCKED: "};
  const Resource resource = proof.blocked.what;
  const uint64_t size = size_of(proof.sizes, resource, proof.blocked.ring);
  const uint64_t most = resource == Resource::kWindow ? size - 1 : size;
  const uint64_t permille = most == 0 ? 0 : proof.used * 1000 / most;
  text.add(kNames[static_cast<uint32_t>(resource)]);
  if (is_per_ring(resource)) {
    text.add("ring=", proof.blocked.ring, ", current=", proof.current,
             ", last_alive=", proof.last_alive, ", ");
  }
  if (resource != Resource::kTasks) {
    text.add("active=", proof.used, "/", most, " (", permille / 10, ".", permille % 10, "%), ");
  }
  text.add("requesting ", proof.blocked.needed, " ", unit_of(resource, proof.blocked.needed),
           ", waited ", waited_ns / 1000000, " ms at ");
  add_place(text, {proof.blocked.file, proof.blocked.line});
}

void add_exhausted(Text& text, const Proof& proof) {
  if (proof.blocked.what == Resource::kWindow) {
    add_tasks(text, proof);
  } else if (proof.blocked.what == Resource::kCluster) {
    text.add("no cluster is free: ", proof.used, " of ", proof.sizes.blocks,
             " clusters are allocated, 1 more wanted");
  } else {
    add_pool(text, proof);
  }
  text.add(" at ");
  add_place(text, {proof.blocked.file, proof.blocked.line});
}

void add_chain(Text& text, const Proof& proof) {
  text.add("orchestrator -> ");
  if (proof.blocked.what == Resource::kCluster) {
    text.add("a free cluster -> ");
  } else {
    text.add("free space -> ");
    if (proof.holder != kNoTask) {
      text.add(RingTaskName{proof.holder}, " from ");
      add_place(text, proof.holder_place);
      text.add(", done but not retired -> ");
    }
  }
  text.add("the end of ");
  add_scope(text, proof);
  text.add(" -> orchestrator");
}

void add_plan(Text& text, const Proof& proof, const Plan& plan) {
  if (is_beyond_devices(plan)) add_too_many_clusters(text, plan);
  uint32_t count = 0;
  for (uint32_t index = 1; index < kResources; ++index) {
    const Resource resource = static_cast<Resource>(index);
    if (!plan.is_any_short(resource)) continue;
    if (resource == Resource::kCluster && is_beyond_devices(plan)) continue;
    if (count++ == 0) {
      text.add(plan.is_lower_bound ? "Needed, at least: " : "Smallest that suffices: ");
    } else {
      text.add("; and ");
    }
    add_size(text, proof.sizes, plan, resource);
  }
  if (count > 0) text.add(". Or end scopes earlier, so that less is alive at once.");
  if (!plan.is_any_short(proof.blocked.what)) {
    text.add(count > 0 ? " " : "", "A larger ", names_of(proof.blocked.what).name,
             " is needed, by ", names_of(proof.blocked.what).key,
             "; the required size could not be determined.");
  }
}

}  // namespace pto::ring_buffer
