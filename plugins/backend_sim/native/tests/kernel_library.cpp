#include <stdint.h>
#include <time.h>

extern "C" __attribute__((visibility("default"))) void kernel_entry(int64_t* args) {
  args[0] *= 2;
}

// Waits at most 5 s until the word at args[0] is not 0. After a timeout, stores 1 in the next word.
extern "C" __attribute__((visibility("default"))) void wait_entry(int64_t* args) {
  int64_t* words = reinterpret_cast<int64_t*>(args[0]);
  const timespec pause{0, 100'000};
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const time_t limit = now.tv_sec + 5;
  while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) == 0 && now.tv_sec <= limit) {
    nanosleep(&pause, nullptr);
    clock_gettime(CLOCK_MONOTONIC, &now);
  }
  if (now.tv_sec > limit) __atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
}

extern "C" __attribute__((visibility("default"))) void tell_entry(int64_t* args) {
  __atomic_store_n(reinterpret_cast<int64_t*>(args[0]), 1, __ATOMIC_RELEASE);
}
