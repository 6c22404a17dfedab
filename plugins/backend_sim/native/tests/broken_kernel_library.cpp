// A kernel library that uses an undefined function.
#include <cstdint>

void nowhere(int64_t* args);

extern "C" void kernel_entry(int64_t* args) {
  nowhere(args);
}
