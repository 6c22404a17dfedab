// Tasks that tests submit to a child group.
#pragma once

#include <cstdint>
#include <string>

#include "driver/child_group.hpp"

// A task with one tensor and one scalar.
struct Task {
  pto_tensor tensor{};
  TensorAccess key{};
  uint64_t scalar = 0;

  Task(uint64_t address, uint64_t bytes, Tag tag, uint64_t value) : scalar(value) {
    tensor.data = address;
    tensor.shapes[0] = static_cast<uint32_t>(bytes);
    tensor.ndims = 1;
    tensor.dtype = 5;
    key = {address, bytes, nullptr, tag};
  }
};

inline int64_t submit(ChildGroup& group, Task& task, int32_t pin = -1, int32_t retries = 0,
                      uint32_t timeout_ms = 0, RunOutcomes* run = nullptr) {
  const Member member{{&task.key, 1}, {&task.tensor, 1}, {&task.scalar, 1}};
  Submission submission;
  submission.kind = Kind::kSub;
  submission.callable = group.noop;
  submission.members = {&member, 1};
  submission.retries = retries;
  submission.timeout_ms = timeout_ms;
  if (pin >= 0) submission.pins = {&pin, 1};
  submission.outcomes = run;
  if (run) submission.run = run->number;
  return group.driver->submit(submission);
}

inline int64_t submit(ChildGroup& group, uint64_t& word) {
  Task task(reinterpret_cast<uintptr_t>(&word), 8, Tag::kInout, 1);
  return submit(group, task);
}

inline uint64_t* word_of(const uint64_t* data) {
  return reinterpret_cast<uint64_t*>(static_cast<uintptr_t>(data[1]));
}
inline uint64_t scalar_of(const uint64_t* data) {
  return data[6];
}

// The body of a task: word = 3 * word + scalar, so the final value shows the order in which tasks
// ran.
inline bool fold(int32_t, const pto_frame&, const uint64_t* data, std::string*) {
  uint64_t* word = word_of(data);
  *word = *word * 3 + scalar_of(data);
  return true;
}
