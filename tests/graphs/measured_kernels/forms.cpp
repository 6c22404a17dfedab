// One access of each form; args[0] is read and args[1] is written.
#include <atomic>
#include <cstdint>
#include <cstring>

struct Block {
  float values[20];
};

extern "C" void kernel_entry(int64_t* args) {
  const auto* from = reinterpret_cast<const char*>(args[0]);
  auto* to = reinterpret_cast<char*>(args[1]);
  std::memcpy(to, from, 48);                                         // 0:48
  __builtin_memcpy(to + 64, from + 64, 32);                          // 64:96
  std::memmove(to + 128, from + 128, static_cast<size_t>(args[2]));  // 128:128 + args[2]
  std::memset(to + 256, 0, 24);                                      // writes 256:280
  *reinterpret_cast<Block*>(to + 320) = *reinterpret_cast<const Block*>(from + 320);  // 320:400
  for (int i = 0; i < 16; ++i) to[512 + i] = static_cast<char>(from[512 + 2 * i] + 1);
  reinterpret_cast<std::atomic<int32_t>*>(to + 640)->fetch_add(1);  // both 640:644
  to[704] = 5;
  to[704] = static_cast<char>(to[704] + from[704]);  // the read of to[704] follows a write
  if (std::memcmp(from + 768, from + 800, 8) == 0) to[768] = 1;
}
