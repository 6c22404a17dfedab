// The id of a task.
#ifndef PTO_TASK_ID_H
#define PTO_TASK_ID_H

#include <cstdint>

struct PTO2TaskId {
  uint64_t raw;  // ring << 32 | number of the task in its ring; all ones: no task

  static constexpr PTO2TaskId invalid() { return {~uint64_t{0}}; }
  constexpr bool is_valid() const { return raw != ~uint64_t{0}; }
  constexpr bool is_invalid() const { return !is_valid(); }
  constexpr uint32_t ring() const { return static_cast<uint32_t>(raw >> 32); }
  constexpr uint32_t local() const { return static_cast<uint32_t>(raw); }
  friend constexpr bool operator==(PTO2TaskId a, PTO2TaskId b) { return a.raw == b.raw; }
  friend constexpr bool operator!=(PTO2TaskId a, PTO2TaskId b) { return a.raw != b.raw; }
};

#endif
