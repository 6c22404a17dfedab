// GCC's OpenMP tasks on the graphs of the figures: the alternative without this framework.
//
// usage: openmp GRAPH TASKS CHAINS REPEATS; prints nanoseconds per task, one number per repeat.
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[gnu::noinline]] void empty_kernel() {
  asm volatile("");
}

void independent(long tasks) {
  for (long i = 0; i < tasks; ++i) {
#pragma omp task
    empty_kernel();
  }
}

void chained(long tasks, long chains, std::vector<char>& slot) {
  for (long i = 0; i < tasks; ++i) {
    [[maybe_unused]] char* key = &slot[static_cast<size_t>((i % chains) * 64)];
#pragma omp task depend(inout : key[0])
    empty_kernel();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool is_chained = std::strcmp(argv[1], "chains") == 0;
  const long tasks = std::atol(argv[2]);
  const long chains = std::atol(argv[3]);
  std::vector<char> slot(static_cast<size_t>(chains) * 64);
  for (int repeat = -1; repeat < std::atoi(argv[4]); ++repeat) {
    const auto start = Clock::now();
#pragma omp parallel num_threads(2)
#pragma omp single
    {
      if (is_chained) {
        chained(tasks, chains, slot);
      } else {
        independent(tasks);
      }
    }
    const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
    if (repeat >= 0) std::printf("%.3f\n", elapsed.count() / static_cast<double>(tasks));
  }
}
