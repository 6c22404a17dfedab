// Tasks as they travel between two hosts: a head, then the arguments, then pieces of memory.
//
// A *plain* task names no memory: it has no tensor and no pieces. Many plain tasks are passed on in
// one call, without an object for each. The numbers of the tasks in a message are consecutive, so a
// head has none. docs/remote-protocol.md describes the layout.
//
// The bytes come from another host: every length is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pto/abi/endpoint.h"

namespace pto::worker {

constexpr int32_t kPortBatch = 64;  // most frames in one call of a port

struct TaskHead {
  uint64_t task;      // number of the task, for messages
  uint64_t required;  // number of the frame that must succeed first; 0: none
  uint32_t config;
  uint32_t bytes;  // of arguments
  uint8_t callable[PTO_DIGEST_BYTES];
  uint16_t flags;
  uint16_t pieces;
  uint32_t reserved;
};

// The same layout for Python, in the notation of its module struct.
constexpr const char* kTaskHeadFormat = "<QQII32sHH4x";

static_assert(sizeof(TaskHead) == 64);
static_assert(offsetof(TaskHead, callable) == 24);

// A task in packed bytes; `size` is its length with its head and arguments, without pieces.
struct PackedTask {
  TaskHead head;
  const char* arguments;
  size_t size;
};

// Return whether the argument blob of a task has no tensors.
bool has_no_tensors(std::string_view arguments);

// Append a task without requirement and pieces.
void pack_task(const pto_frame& frame, std::string_view arguments, std::string& packed);

// Read the task at the beginning of `packed`. Return false if it is incomplete.
bool read_task(std::string_view packed, PackedTask& task);

// The number of plain tasks at the beginning of some bytes, and their length in bytes.
struct PlainTasks {
  uint64_t count = 0;
  size_t size = 0;
};

// Count the plain tasks at the beginning of `packed`, at most `limit`; the first task has the
// number `number`. A task that requires itself or a later task is not plain.
PlainTasks plain_tasks(std::string_view packed, uint64_t number, uint64_t limit);

}  // namespace pto::worker
