// Graphs for the tests, and a record of the order in which their kernels ran.
#pragma once

#include <atomic>
#include <vector>

#include "device_fixture.hpp"

// The order in which tasks ran: each kernel appends the number of its task.
struct Record {
  explicit Record(size_t capacity) : order(capacity) {}

  static int32_t kernel(void* context, const pto_payload* payload, uint32_t, pto_error*) {
    auto& record = *static_cast<Record*>(context);
    record.order[record.count.fetch_add(1)].store(static_cast<int64_t>(payload->task));
    return 0;
  }

  size_t position(int64_t task) const {
    for (size_t i = 0; i < count.load(); ++i) {
      if (order[i].load() == task) return i;
    }
    check::failed(__FILE__, __LINE__, "task " + std::to_string(task) + " never ran");
  }

  std::atomic<size_t> count{0};
  std::vector<std::atomic<int64_t>> order;
};

// Adds a chain of tasks: each task depends on the one before it.
inline toy::Program chain(int32_t func_id, int64_t length) {
  return [=](toy::Runtime& runtime) {
    int64_t last = -1;
    for (int64_t i = 0; i < length; ++i) {
      std::vector<int64_t> after;
      if (last >= 0) after.push_back(last);
      last = runtime.submit(func_id, i % 2 == 0 ? PTO_CORE_AIV : PTO_CORE_AIC, {}, after);
    }
    return 0;
  };
}

// Adds `layers` diamonds in sequence. A diamond is one task, then `width` tasks after it, then one
// task after all of those.
inline toy::Program diamonds(int32_t func_id, int64_t width, int64_t layers) {
  return [=](toy::Runtime& runtime) {
    std::vector<int64_t> before;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t top = runtime.submit(func_id, PTO_CORE_AIC, {}, before);
      std::vector<int64_t> middle;
      for (int64_t i = 0; i < width; ++i) {
        middle.push_back(runtime.submit(func_id, PTO_CORE_AIV, {}, {top}));
      }
      before = {runtime.submit(func_id, PTO_CORE_AIC, {}, middle)};
    }
    return 0;
  };
}

// Checks that the recorded order respects the edges of diamonds().
inline void check_diamonds(const Record& record, int64_t width, int64_t layers) {
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t top = layer * (width + 2);
    const size_t first = record.position(top);
    const size_t last = record.position(top + width + 1);
    for (int64_t i = 1; i <= width; ++i) {
      const size_t at = record.position(top + i);
      CHECK(first < at && at < last);
    }
  }
}
