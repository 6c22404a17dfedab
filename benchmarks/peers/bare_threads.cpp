// Bare threads that run the compute-bound kernel of the figures. Each thread takes the number of
// its next call from a counter. These threads are the floor for the use of cores.
//
// usage: bare_threads KERNEL_LIBRARY CALLS THREADS REPEATS LOOPS; prints wall nanoseconds per call.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 3;
  auto kernel = reinterpret_cast<void (*)(int64_t*)>(dlsym(library, "kernel_entry"));
  if (kernel == nullptr) return 4;
  const long calls = std::atol(argv[2]);
  const int threads = std::atoi(argv[3]);
  const int64_t loops = std::atol(argv[5]);
  for (int repeat = -1; repeat < std::atoi(argv[4]); ++repeat) {
    std::atomic<long> next{0};
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&] {
        while (next.fetch_add(1, std::memory_order_relaxed) < calls) {
          int64_t args[1] = {loops};
          kernel(args);
        }
      });
    }
    for (std::thread& thread : pool) thread.join();
    const std::chrono::duration<double, std::nano> elapsed =
        std::chrono::steady_clock::now() - start;
    if (repeat >= 0) std::printf("%.3f\n", elapsed.count() / static_cast<double>(calls));
  }
}
