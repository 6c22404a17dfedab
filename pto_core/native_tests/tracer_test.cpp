// The trace of a Worker: the records of its driver, and the rings of its children.

#include "trace/tracer.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"
#include "trace/child_ring.hpp"

namespace {

using namespace pto::worker;

constexpr uint64_t kTasks = check::kIsSanitized ? 20000 : 200000;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

using Memory = std::unique_ptr<void, Free>;

Memory zeroed(uint64_t bytes) {
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  std::memset(memory, 0, bytes);
  return Memory(memory);
}

struct Traced {
  Traced(uint32_t children, uint64_t ring_records)
      : table(zeroed(ProgressTable::bytes_needed(children))),
        buffer(zeroed(trace_bytes(children, ring_records))),
        progress(ProgressTable::create(table.get(), children, 2)),
        tracer(progress),
        memory{buffer.get(), ring_bytes(ring_records), ring_records} {}

  Memory table;
  Memory buffer;
  ProgressTable progress;
  Tracer tracer;
  TraceMemory memory;
};

std::vector<pto_trace_record> records_of(const WorkerRecords& ended) {
  std::vector<pto_trace_record> found(ended.records.size() / sizeof(pto_trace_record));
  if (!found.empty()) std::memcpy(found.data(), ended.records.data(), ended.records.size());
  return found;
}

TEST(a_child_writes_while_the_driver_drains) {
  Traced traced(2, 64);
  traced.tracer.begin({PTO_TRACE_TASKS}, traced.memory);
  std::atomic<bool> is_done{false};
  std::thread child([&] {
    ChildTrace trace(traced.progress, 1);
    for (uint64_t task = 0; task < kTasks; ++task) {
      if (trace.groups() == 0) continue;
      trace.start(task, task + 1);
      trace.end(task, task + 1, 0);
    }
    is_done = true;
  });
  while (!is_done) traced.tracer.drain();
  child.join();
  const WorkerRecords ended = traced.tracer.end();
  const auto found = records_of(ended);
  CHECK_EQUAL(found.size() + ended.lost[3], 2 * kTasks);
  CHECK_EQUAL(ended.lost[2], uint64_t{0});
  for (size_t i = 1; i < found.size(); ++i) {
    CHECK(found[i].number > found[i - 1].number);
    CHECK(found[i].clock >= found[i - 1].clock);
  }
  for (const pto_trace_record& record : found) {
    CHECK_EQUAL(record.track, kFirstChildTrack + 1);
    CHECK_EQUAL(uint64_t{record.number} / 2, record.a);
  }
}

TEST(the_limit_holds_for_all_tracks_together) {
  Traced traced(1, 16);
  traced.tracer.begin({PTO_TRACE_TASKS, 5}, traced.memory);
  ChildTrace child(traced.progress, 0);
  for (uint64_t task = 0; task < 4; ++task) {
    traced.tracer.add(kOrchestratorTrack, PTO_TRACE_SUBMIT, task, 0);
    child.start(task, task + 1);
  }
  traced.tracer.ready(7, -1);
  traced.tracer.ready(8, 7);
  const WorkerRecords ended = traced.tracer.end();
  CHECK_EQUAL(records_of(ended).size(), size_t{5});
  CHECK_EQUAL(ended.lost[0], uint64_t{0});
  CHECK_EQUAL(ended.lost[1], uint64_t{1});
  CHECK_EQUAL(ended.lost[2], uint64_t{4});
  CHECK(ended.first.ns <= ended.last.ns && ended.first.ticks <= ended.last.ticks);
}

TEST(a_trace_begins_empty) {
  Traced traced(1, 16);
  for (int round = 0; round < 3; ++round) {
    traced.tracer.begin({PTO_TRACE_TASKS, 100}, traced.memory);
    ChildTrace child(traced.progress, 0);
    CHECK_EQUAL(child.groups(), uint32_t{PTO_TRACE_TASKS});
    child.start(1, 1);
    traced.tracer.run_began(1);
    traced.tracer.run_built(1);
    const WorkerRecords ended = traced.tracer.end();
    CHECK_EQUAL(records_of(ended).size(), size_t{2});
    CHECK_EQUAL(ended.runs.size(), size_t{1});
    CHECK_EQUAL(child.groups(), uint32_t{0});
  }
  CHECK(records_of(traced.tracer.end()).empty());
}

TEST(records_outside_of_the_window_are_dropped_without_a_count) {
  constexpr uint64_t kFar = 1'000'000'000'000;
  const uint64_t later = pto::engine::monotonic_ns() + kFar;
  for (const bool is_inside : {false, true}) {
    Traced traced(1, 16);
    WorkerTraceSettings settings{PTO_TRACE_TASKS};
    (is_inside ? settings.window_end_ns : settings.window_begin_ns) = later;
    traced.tracer.begin(settings, traced.memory);
    ChildTrace child(traced.progress, 0);
    for (uint64_t task = 0; task < 40; ++task) {
      child.start(task, task + 1);
      traced.tracer.add(kOrchestratorTrack, PTO_TRACE_SUBMIT, task, 0);
    }
    const WorkerRecords ended = traced.tracer.end();
    CHECK_EQUAL(records_of(ended).size(), size_t{is_inside ? 56u : 0u});
    CHECK_EQUAL(ended.lost[0], uint64_t{0});
    CHECK_EQUAL(ended.lost[2], uint64_t{is_inside ? 24u : 0u});
  }
}

TEST(a_flight_recorder_keeps_the_last_records_of_each_track) {
  constexpr uint64_t kRing = 16;
  Traced traced(1, kRing);
  WorkerTraceSettings settings{PTO_TRACE_TASKS};
  settings.keeps_last = true;
  traced.tracer.begin(settings, traced.memory);
  ChildTrace child(traced.progress, 0);
  for (uint64_t task = 0; task < 100; ++task) {
    child.start(task, task + 1);
    traced.tracer.ready(static_cast<int64_t>(task), -1);
    traced.tracer.frames_ended(1);
  }
  traced.tracer.add(kOrchestratorTrack, PTO_TRACE_SUBMIT, 7, 0);
  const WorkerRecords ended = traced.tracer.end();
  uint32_t next[3] = {0, 100 - kRing, 100 - kRing + 1};  // an entry of a child may be incomplete
  for (const pto_trace_record& record : records_of(ended)) {
    uint32_t& number = next[record.track < kFirstChildTrack ? record.track : 2];
    CHECK_EQUAL(record.number, number);
    ++number;
  }
  CHECK_EQUAL(next[0], 1u);
  CHECK_EQUAL(next[1], 100u);
  CHECK_EQUAL(next[2], 100u);
  for (const uint64_t count : ended.lost) CHECK_EQUAL(count, uint64_t{0});
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
