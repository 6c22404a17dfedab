#include "statistics.hpp"

#include "pto/engine/text.hpp"

namespace pto::ring_buffer {
namespace {

constexpr const char* kCounterNames[kWaits] = {"",           "tasks",    "heap",       "pool",
                                               "tensor_map", "clusters", "tensor_data"};

// Writes counters into an array, and counts also the counters that do not fit. The name of a
// counter is joined from several parts.
class Writer {
 public:
  Writer(pto_statistic* out, uint32_t capacity) : out_(out), capacity_(capacity) {}

  template <class... Parts>
  void sum(uint64_t value, Parts... name) {
    add(value, 0, name...);
  }

  template <class... Parts>
  void peak(uint64_t value, Parts... name) {
    add(value, 1, name...);
  }

  uint32_t count() const { return count_; }

 private:
  template <class... Parts>
  void add(uint64_t value, uint32_t is_peak, Parts... name) {
    if (count_ < capacity_) {
      pto_statistic& statistic = out_[count_];
      engine::Text(statistic.name, sizeof statistic.name).add(name...);
      statistic.value = value;
      statistic.is_peak = is_peak;
      statistic.reserved = 0;
    }
    ++count_;
  }

  pto_statistic* out_;
  uint32_t capacity_;
  uint32_t count_ = 0;
};

LaneStatistics sum_of_lanes(const Scheduler& scheduler) {
  LaneStatistics all{};
  for (uint32_t thread = 0; thread < scheduler.threads(); ++thread) {
    const LaneStatistics& lane = scheduler.statistics(thread);
    all.batches += lane.batches;
    all.edges += lane.edges;
    all.edges_satisfied += lane.edges_satisfied;
    all.early_ready += lane.early_ready;
    all.shared += lane.shared;
    all.taken += lane.taken;
    all.steals += lane.steals;
    all.pinned += lane.pinned;
    all.retired += lane.retired;
    all.wakes += lane.wakes;
    if (lane.ready_peak > all.ready_peak) all.ready_peak = lane.ready_peak;
  }
  return all;
}

void write_edges(Writer& writer, const RunStatistics& run, const LaneStatistics& lanes,
                 const TensorMap::Statistics& map) {
  writer.sum(lanes.edges, "edges");
  writer.sum(lanes.edges_satisfied, "edges_to_completed");
  writer.sum(run.edges.raw, "edges_read_after_write");
  writer.sum(run.edges.war, "edges_write_after_read");
  writer.sum(run.edges.waw, "edges_write_after_write");
  writer.sum(run.edges.explicit_, "edges_explicit");
  writer.sum(map.conservative_edges, "edges_conservative");
  writer.sum(run.edges.owner, "owner_references");
}

void write_map(Writer& writer, const TensorMap::Statistics& map) {
  writer.sum(map.lookups, "lookups");
  writer.sum(map.nodes_visited, "lookup_nodes_visited");
  writer.sum(map.cleaned_by_lookup, "entries_cleaned_by_lookup");
  writer.sum(map.cleaned_by_batch, "entries_cleaned_by_batch");
  writer.sum(map.cleaned_by_back_pressure, "entries_cleaned_by_back_pressure");
  writer.sum(map.covered, "entries_covered");
  writer.sum(map.live, "tensor_map_entries");
  writer.peak(map.peak, "tensor_map_entries_peak");
}

void write_ring(Writer& writer, uint32_t ring, const RunStatistics::Ring& run, const RingUse& use) {
  writer.sum(use.tasks, "ring", ring, "_tasks");
  writer.peak(run.tasks_peak, "ring", ring, "_tasks_peak");
  writer.sum(use.heap_bytes, "ring", ring, "_heap_bytes");
  writer.peak(run.heap_peak, "ring", ring, "_heap_bytes_peak");
  writer.sum(use.dependencies, "ring", ring, "_dependencies");
  writer.peak(run.dependencies_peak, "ring", ring, "_dependencies_peak");
  writer.sum(run.scopes, "ring", ring, "_scopes");
}

void write_blocked(Writer& writer, const RunStatistics& run) {
  for (uint32_t resource = 1; resource < kWaits; ++resource) {
    writer.sum(run.blocked[resource].count, "blocked_on_", kCounterNames[resource]);
    writer.sum(run.blocked[resource].ns, "blocked_on_", kCounterNames[resource], "_ns");
  }
}

void write_schedulers(Writer& writer, const Scheduler& scheduler, const LaneStatistics& lanes) {
  writer.sum(lanes.early_ready, "early_ready");
  writer.sum(lanes.shared, "tasks_shared");
  writer.sum(lanes.taken, "tasks_taken");
  writer.sum(lanes.steals, "steals");
  writer.sum(lanes.pinned, "tasks_in_clusters");
  writer.sum(lanes.retired, "tasks_retired");
  writer.sum(lanes.wakes, "wakes");
  writer.peak(lanes.ready_peak, "ready_peak");
  writer.sum(lanes.batches, "dispatch_batches");
  for (uint32_t thread = 0; thread < scheduler.threads(); ++thread) {
    writer.sum(scheduler.statistics(thread).dispatches, "dispatches_", thread);
  }
}

}  // namespace

uint32_t write_statistics(const StatisticsSources& sources, pto_statistic* out, uint32_t capacity) {
  Writer writer(out, capacity);
  const LaneStatistics lanes = sum_of_lanes(sources.scheduler);
  writer.sum(sources.run.tasks, "tasks");
  write_edges(writer, sources.run, lanes, sources.map);
  write_map(writer, sources.map);
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    write_ring(writer, ring, sources.run.ring[ring], sources.use[ring]);
  }
  write_blocked(writer, sources.run);
  write_schedulers(writer, sources.scheduler, lanes);
  writer.sum(sources.clusters.allocations(), "clusters_allocated");
  writer.peak(sources.clusters.peak(), "clusters_peak");
  writer.peak(sources.reserved_bytes, "reserved_bytes");
  return writer.count();
}

}  // namespace pto::ring_buffer
