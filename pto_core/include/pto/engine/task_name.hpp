// The name of a task in messages of level 2. All native code writes the name with this header.
#pragma once

#include <cstdint>

#include "pto/abi/runtime.h"
#include "pto/engine/text.hpp"

namespace pto::engine {

// Written as "task 3", or "task 3 of ring 1" if the runtime has PTO_RUNTIME_RING_IDS.
struct TaskName {
  int64_t id;
  uint32_t capabilities;  // capability bits of the runtime
};

inline void write(Text& text, TaskName task) {
  if (task.id < 0 || (task.capabilities & PTO_RUNTIME_RING_IDS) == 0) {
    text.add("task ", task.id);
  } else {
    text.add("task ", task.id / PTO_TASK_RINGS, " of ring ", task.id % PTO_TASK_RINGS);
  }
}

}  // namespace pto::engine
