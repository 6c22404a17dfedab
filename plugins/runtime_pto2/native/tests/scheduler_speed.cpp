// Measures the cost of a task for the scheduler: wiring, dispatch, completion, retirement. There is
// no orchestrator, and kernels and cores cost nothing.
//
// Prints one line for each graph and number of schedulers: median, minimum and maximum nanoseconds
// for a task. The schedulers run in turn on one thread. Argument: repetitions.
#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "feeder.hpp"

namespace {

constexpr uint32_t kTasks = 1000;
constexpr uint32_t kRounds = 30;

struct Cores {
  pto_topology topology{};
  pto_platform table{};
  pto_core_mask busy[PTO_MAX_AICPU_THREADS] = {};

  explicit Cores(uint32_t schedulers) {
    topology.blocks = 24;
    topology.cores = 72;
    topology.schedulers = schedulers;
    for (uint32_t core = 0; core < topology.cores; ++core) {
      const uint32_t cluster = core < 24 ? core : (core - 24) / 2;
      topology.core_type[core] = core < 24 ? PTO_CORE_AIC : PTO_CORE_AIV;
      const uint64_t bit = uint64_t{1} << (core % 64);
      topology.thread_cores[cluster % schedulers].words[core / 64] |= bit;
    }
    table.self = this;
    table.topology = &topology;
    table.reserve = [](void*, size_t bytes) { return std::calloc(bytes, 1); };
    table.release = [](void*, void* memory, size_t) { std::free(memory); };
    table.wake = [](void*, uint32_t) {};
    table.notify = [](void*, const uint32_t*) {};
    table.dispatch = [](void* raw, uint32_t thread, const pto_dispatch* batch, uint32_t count) {
      pto_core_mask& busy = static_cast<Cores*>(raw)->busy[thread];
      for (uint32_t i = 0; i < count; ++i) {
        busy.words[batch[i].core / 64] |= uint64_t{1} << (batch[i].core % 64);
      }
    };
    table.poll = [](void* raw, uint32_t thread, pto_poll_result* result) {
      result->done = static_cast<Cores*>(raw)->busy[thread];
      result->faulted = {};
      static_cast<Cores*>(raw)->busy[thread] = {};
    };
  }
};

// Runs a graph in which task i waits for task i - `distance` and holds its slot. If the distance is
// 0, no task waits. All submits are written before the measurement starts.
double run_once(Feeder& feeder, uint32_t schedulers, int64_t distance) {
  using Clock = std::chrono::steady_clock;
  feeder.begin();
  Clock::duration time{};
  int64_t next = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kTasks; ++i, ++next) {
      Feeder::Submit task;
      task.type = PTO_CORE_AIV;
      if (distance > 0 && next >= distance) {
        task.producers = {{TaskId{0, next - distance}.value(), kOrders | kHolds}};
      }
      CHECK(feeder.write(task));
    }
    feeder.publish();
    feeder.release(0, next);
    const auto start = Clock::now();
    while (feeder.alive(0u) < next) {
      for (uint32_t thread = 0; thread < schedulers; ++thread) feeder.scheduler().step(thread);
    }
    time += Clock::now() - start;
  }
  return std::chrono::duration<double, std::nano>(time).count() / (kRounds * kTasks);
}

void measure(const char* name, uint32_t schedulers, int64_t distance, int repetitions) {
  Cores cores(schedulers);
  Feeder feeder(&cores.table, {2048, 3, 1});
  std::vector<double> times;
  run_once(feeder, schedulers, distance);
  for (int i = 0; i < repetitions; ++i) times.push_back(run_once(feeder, schedulers, distance));
  std::sort(times.begin(), times.end());
  std::printf("%-12s %u schedulers: %6.1f ns a task (%.1f to %.1f)\n", name, schedulers,
              times[times.size() / 2], times.front(), times.back());
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 11;
  for (uint32_t schedulers = 1; schedulers <= 3; ++schedulers) {
    measure("chain", schedulers, 1, repetitions);
    measure("8 chains", schedulers, 8, repetitions);
    measure("64 chains", schedulers, 64, repetitions);
    measure("independent", schedulers, 0, repetitions);
  }
  return 0;
}
