// A kernel library that uses a function which is nowhere.
#include <cstdint>

void nowhere(int64_t* args);

extern "C" void kernel_entry(int64_t* args) {
  nowhere(args);
}
