// The trace of a run equals what the kernels themselves logged: start, end, core and thread of each
// task. It does so in both modes, and with rings that are too small, where the number of dropped
// records is exact.
#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "graphs.hpp"

namespace {

constexpr int64_t kWidth = 30;
constexpr int64_t kLayers = 20;
constexpr size_t kTasks = (kWidth + 2) * kLayers;
constexpr uint32_t kAllGroups = (1u << PTO_TRACE_LEVELS) - 1;

struct Logged {
  uint64_t start, end;
  uint32_t core;
  std::thread::id thread;
};

// What the kernels write about themselves, with the clock of the platform table.
struct Log {
  explicit Log(size_t tasks) : tasks(tasks) {}

  static int32_t kernel(void* context, const pto_payload* payload, uint32_t core, pto_error*) {
    auto& log = *static_cast<Log*>(context);
    Logged& mine = log.tasks[payload->task];
    mine.start = pto_clock(log.platform);
    for (int i = 0; i < 200; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    mine.core = core;
    mine.thread = std::this_thread::get_id();
    mine.end = pto_clock(log.platform);
    return 0;
  }

  const pto_platform* platform = nullptr;
  std::vector<Logged> tasks;
};

// The rings of a run. Nothing drains them before the end of the run.
struct Rings {
  Rings(uint32_t groups, size_t entries) : records(PTO_TRACKS * entries) {
    trace.groups = groups;
    trace.rings = rings.data();
    for (size_t track = 0; track < PTO_TRACKS; ++track) {
      rings[track].records = &records[track * entries];
      rings[track].mask = entries - 1;
    }
  }

  std::vector<pto_trace_record> of(uint16_t event) const {
    std::vector<pto_trace_record> found;
    for (const pto_trace_ring& ring : rings) {
      for (uint64_t i = 0; i < ring.written; ++i) {
        if (ring.records[i].event == event) found.push_back(ring.records[i]);
      }
    }
    return found;
  }

  uint64_t written() const {
    uint64_t total = 0;
    for (const pto_trace_ring& ring : rings) total += ring.written;
    return total;
  }

  uint64_t attempts() const {
    uint64_t total = 0;
    for (const pto_trace_ring& ring : rings) total += ring.attempts;
    return total;
  }

  pto_run_trace trace{};
  std::vector<pto_trace_ring> rings{PTO_TRACKS};
  std::vector<pto_trace_record> records;
};

struct Traced {
  Traced(const std::vector<Fixture::Option>& options, uint32_t groups, size_t entries)
      : device(options, toy::concurrent), log(kTasks), rings(groups, entries) {
    log.platform = &device.runtime->platform();
    const int32_t func_id = device.kernel(Log::kernel, &log);
    device.trace = &rings.trace;
    CHECK_EQUAL(device.run(diamonds(func_id, kWidth, kLayers)), PTO_OK);
  }

  Fixture device;
  Log log;
  Rings rings;
};

const std::vector<Fixture::Option> kThreads = {{"workers", "3"}};
const std::vector<Fixture::Option> kDeterministic = {{"mode", "deterministic"}, {"seed", "7"}};

// Checks every start and end in the trace against the log of the kernels.
void check_truth(const Traced& run) {
  std::map<uint64_t, pto_trace_record> starts, ends;
  for (const auto& record : run.rings.of(PTO_TRACE_START)) starts[record.a] = record;
  for (const auto& record : run.rings.of(PTO_TRACE_END)) ends[record.a] = record;
  std::map<uint16_t, std::thread::id> thread_of_track;
  for (const auto& [task, start] : starts) {
    const Logged& logged = run.log.tasks[task];
    CHECK(start.clock <= logged.start);
    CHECK_EQUAL(start.b & 0xFFFFFFFF, uint64_t{logged.core});
    CHECK_EQUAL(start.b >> 32, uint64_t{0});
    CHECK(start.track >= PTO_TRACK_WORKER);
    CHECK(thread_of_track.emplace(start.track, logged.thread).first->second == logged.thread);
    const auto end = ends.find(task);
    if (end == ends.end()) continue;
    CHECK(logged.end <= end->second.clock);
    CHECK_EQUAL(end->second.b & 0xFFFF, uint64_t{logged.core});
    CHECK_EQUAL(end->second.track, start.track);
  }
}

// The kernels of one thread do not overlap, so a start cannot be far from its kernel's own start.
void check_no_overlap(const Rings& rings) {
  for (const pto_trace_ring& ring : rings.rings) {
    uint64_t last = 0;
    bool is_running = false;
    for (uint64_t i = 0; i < ring.written; ++i) {
      const pto_trace_record& record = ring.records[i];
      CHECK(record.clock >= last);
      last = record.clock;
      if (record.event == PTO_TRACE_START || record.event == PTO_TRACE_END) {
        CHECK_EQUAL(is_running, record.event == PTO_TRACE_END);
        is_running = !is_running;
      }
    }
  }
}

void check_complete(const std::vector<Fixture::Option>& options) {
  const Traced run(options, kAllGroups, 1 << 14);
  CHECK_EQUAL(run.rings.attempts(), run.rings.written());
  for (const uint16_t event :
       {PTO_TRACE_SUBMIT, PTO_TRACE_DISPATCH, PTO_TRACE_START, PTO_TRACE_END}) {
    CHECK_EQUAL(run.rings.of(event).size(), kTasks);
  }
  CHECK_EQUAL(run.rings.of(PTO_TRACE_BUILD).size(), size_t{1});
  check_truth(run);
  check_no_overlap(run.rings);
}

}  // namespace

TEST(the_trace_equals_the_log_of_the_kernels) {
  check_complete(kThreads);
}

TEST(the_trace_equals_the_log_in_deterministic_mode) {
  check_complete(kDeterministic);
}

TEST(a_kernel_takes_a_step_in_deterministic_mode) {
  const Traced run(kDeterministic, PTO_TRACE_TASKS, 1 << 14);
  CHECK_EQUAL(run.rings.trace.clock, uint32_t{PTO_CLOCK_STEPS});
  const auto starts = run.rings.of(PTO_TRACE_START), ends = run.rings.of(PTO_TRACE_END);
  for (size_t i = 0; i < starts.size(); ++i) CHECK_EQUAL(starts[i].clock + 1, ends[i].clock);
}

TEST(one_seed_gives_the_same_records) {
  const Traced first(kDeterministic, kAllGroups, 1 << 14);
  const Traced second(kDeterministic, kAllGroups, 1 << 14);
  CHECK_EQUAL(first.rings.written(), second.rings.written());
  const auto& a = first.rings.records;
  const auto& b = second.rings.records;
  CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

TEST(a_trace_does_not_change_the_hash) {
  const Traced traced(kDeterministic, kAllGroups, 1 << 14);
  const Traced small(kDeterministic, PTO_TRACE_TASKS, 2);
  CHECK_EQUAL(traced.device.report.trace_hash, small.device.report.trace_hash);
}

TEST(a_full_ring_drops_the_newest_records_and_counts_them) {
  for (const auto& options : {kThreads, kDeterministic}) {
    const Traced whole(options, PTO_TRACE_TASKS, 1 << 14);
    const Traced small(options, PTO_TRACE_TASKS, 16);
    CHECK_EQUAL(small.rings.attempts(), whole.rings.attempts());
    CHECK(small.rings.written() < small.rings.attempts());
    for (const pto_trace_ring& ring : small.rings.rings) {
      CHECK_EQUAL(ring.written, std::min<uint64_t>(ring.attempts, 16));
      for (uint64_t i = 0; i < ring.written; ++i) CHECK_EQUAL(ring.records[i].number, uint32_t(i));
    }
    check_truth(small);
  }
}

TEST(only_the_requested_groups_are_recorded) {
  const Traced run(kThreads, PTO_TRACE_WAITS, 1 << 14);
  CHECK(run.rings.of(PTO_TRACE_START).empty());
  CHECK(run.rings.of(PTO_TRACE_DISPATCH).empty());
  CHECK(run.rings.of(PTO_TRACE_SUBMIT).empty());
}

TEST(a_run_without_a_trace_writes_nothing) {
  Traced run(kThreads, kAllGroups, 1 << 14);
  const uint64_t before = run.rings.attempts();
  run.device.trace = nullptr;
  CHECK_EQUAL(run.device.run(diamonds(0, kWidth, kLayers)), PTO_OK);
  CHECK_EQUAL(run.rings.attempts(), before);
}

TEST(a_trace_states_how_many_threads_can_run_kernels) {
  CHECK_EQUAL(Traced(kThreads, PTO_TRACE_TASKS, 16).rings.trace.workers, uint64_t{3});
  CHECK_EQUAL(Traced(kDeterministic, PTO_TRACE_TASKS, 16).rings.trace.workers, uint64_t{1});
}

TEST(two_pairs_of_clocks_convert_the_times) {
  const Traced run(kThreads, PTO_TRACE_TASKS, 1 << 14);
  const pto_run_trace& trace = run.rings.trace;
  CHECK(trace.first.ns < trace.last.ns);
  CHECK(trace.first.ticks < trace.last.ticks);
  for (const auto& record : run.rings.of(PTO_TRACE_START)) {
    CHECK(trace.first.ticks <= record.clock && record.clock <= trace.last.ticks);
  }
}

int main(int argc, char** argv) {
  return check::run(argc, argv);
}
