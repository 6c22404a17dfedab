// GCC's OpenMP tasks with `depend` on the graphs of sources/orchestration/tensors.cpp.
//
// usage: openmp_depend GRAPH TASKS WIDTH REPEATS; prints nanoseconds per task, one number per
// repeat. GRAPH: slices, outputs or attention.
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct alignas(64) Key {
  char byte;
};

[[gnu::noinline]] void empty_kernel() {
  asm volatile("");
}

void update_slices(std::vector<Key>& slices, long tasks) {
  const long width = static_cast<long>(slices.size());
  for (long i = 0; i < tasks; ++i) {
    [[maybe_unused]] Key* key = &slices[static_cast<size_t>(i % width)];
#pragma omp task depend(inout : key[0])
    empty_kernel();
  }
}

// The outputs of a lane alternate between two keys. The slice, which no task writes, is left out,
// because GCC would keep each of its readers in a list.
void make_outputs(std::vector<Key>& outputs, long tasks, long width) {
  for (long i = 0; i < tasks; ++i) {
    const size_t lane = static_cast<size_t>(i % width);
    const size_t turn = static_cast<size_t>(i / width % 2) * static_cast<size_t>(width);
    [[maybe_unused]] Key* last = &outputs[lane + static_cast<size_t>(width) - turn];
    [[maybe_unused]] Key* out = &outputs[lane + turn];
#pragma omp task depend(in : last[0]) depend(out : out[0])
    empty_kernel();
  }
}

// Returns the number of keys of a query: its three accumulators, then five for every block.
size_t keys_of_query(long blocks) {
  return 3 + 5 * static_cast<size_t>(blocks);
}

void attend(std::vector<Key>& keys, long queries, long blocks) {
  enum { oi, li, mi };
  enum { sij, pij, mij, lij, oi_new };
  for (long query = 0; query < queries; ++query) {
    [[maybe_unused]] Key* q = &keys[static_cast<size_t>(query % 2) * keys_of_query(blocks)];
#pragma omp task depend(out : q[oi], q[li], q[mi])
    empty_kernel();
    for (long block = 0; block < blocks; ++block) {
      [[maybe_unused]] Key* k = q + 3 + 5 * block;
#pragma omp task depend(out : k[sij])
      empty_kernel();
#pragma omp task depend(in : k[sij]) depend(out : k[pij], k[mij], k[lij])
      empty_kernel();
#pragma omp task depend(in : k[pij]) depend(out : k[oi_new])
      empty_kernel();
#pragma omp task depend(in : k[mij], k[lij], k[oi_new]) depend(inout : q[mi], q[li], q[oi])
      empty_kernel();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const long tasks = std::atol(argv[2]);
  const long width = std::atol(argv[3]);
  std::vector<Key> slices(static_cast<size_t>(width)), others(2 * keys_of_query(width));
  long count = tasks;
  for (int repeat = -1; repeat < std::atoi(argv[4]); ++repeat) {
    const auto start = Clock::now();
#pragma omp parallel num_threads(2)
#pragma omp single
    {
      if (std::strcmp(argv[1], "slices") == 0) {
        update_slices(slices, tasks);
      } else if (std::strcmp(argv[1], "outputs") == 0) {
        make_outputs(others, tasks, width);
      } else {
        attend(others, tasks, width);
        count = tasks * (1 + 4 * width);
      }
    }
    const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
    if (repeat >= 0) std::printf("%.3f\n", elapsed.count() / static_cast<double>(count));
  }
}
