// Taskflow's static graph on the graphs of the figures.
//
// usage: taskflow GRAPH TASKS CHAINS REPEATS; prints "build run" in nanoseconds per task, one line
// per repeat.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <taskflow/taskflow.hpp>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[gnu::noinline]] void empty_kernel() {
  asm volatile("");
}

double elapsed_ns(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

void build(tf::Taskflow& graph, bool is_chained, long tasks, long chains) {
  std::vector<tf::Task> last(static_cast<size_t>(chains));
  for (long i = 0; i < tasks; ++i) {
    tf::Task task = graph.emplace(empty_kernel);
    if (!is_chained) continue;
    tf::Task& previous = last[static_cast<size_t>(i % chains)];
    if (!previous.empty()) previous.precede(task);
    previous = task;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool is_chained = std::strcmp(argv[1], "chains") == 0;
  const long tasks = std::atol(argv[2]);
  const auto count = static_cast<double>(tasks);
  tf::Executor executor(2);
  for (int repeat = -1; repeat < std::atoi(argv[4]); ++repeat) {
    tf::Taskflow graph;
    auto start = Clock::now();
    build(graph, is_chained, tasks, std::atol(argv[3]));
    const double build_ns = elapsed_ns(start);
    start = Clock::now();
    executor.run(graph).wait();
    const double run_ns = elapsed_ns(start);
    if (repeat >= 0) std::printf("%.3f %.3f\n", build_ns / count, run_ns / count);
  }
}
