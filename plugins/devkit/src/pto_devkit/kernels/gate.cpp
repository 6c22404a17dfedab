// Report the start of the kernel, then occupy the core until the gate opens or the time limit
// expires.
//
// args: 0 = the gate (word 0: entered, word 1: opened), 1 = the limit in milliseconds.
#include <chrono>
#include <cstdint>
#include <thread>

extern "C" void kernel_entry(int64_t* args) {
  uint64_t* gate = reinterpret_cast<uint64_t*>(args[0]);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(args[1]);
  __atomic_store_n(&gate[0], 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&gate[1], __ATOMIC_ACQUIRE) == 0) {
    if (std::chrono::steady_clock::now() > limit) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
