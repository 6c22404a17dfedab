// The data that the driver keeps for each task until it has ended: for its frames, and for messages
// about the task.
//
// Invariant: a record is live from append() to end(). Records lie in chunks, ordered by task
// number, with the blobs of their tasks. A chunk is freed when its last task has ended. Only the
// thread that has the driver role uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace pto::hierarchy {

// The source position of a submit, as numbers that the host can translate.
struct Place {
  uint32_t code = 0;  // number of a code object; 0: unknown
  int32_t instruction = 0;
};

// The data of a task: its blobs, and the values for its frames and error messages.
struct TaskRecord {
  enum Flags : uint8_t { kIsLive = 1, kHasArguments = 2, kHasUses = 4 };

  // The blobs of all members in sequence, each aligned to 8. With kHasUses, each blob is followed
  // by one byte for each tensor: the value of pto_tensor.use, for children that receive uses.
  std::byte* blobs;
  uint32_t callable;
  uint32_t config;
  uint32_t timeout_ms;
  Place place;
  uint16_t members;
  uint8_t flags;

  bool is_live() const { return (flags & kIsLive) != 0; }
};
static_assert(sizeof(TaskRecord) == 32, "keep records small: there is one for each waiting task");

class Records {
 public:
  // Add the record of task `number`, which is larger than all numbers before. Reserve `bytes` for
  // its blobs. Skipped numbers have no record.
  TaskRecord& append(int64_t number, size_t bytes);

  // Return the record of a task, or nullptr if the task has ended or has no record.
  TaskRecord* find(int64_t number) {
    if (number < first_ || number >= next_) return nullptr;
    Chunk* chunk = chunks_[static_cast<size_t>(number / kTasks - first_ / kTasks)].get();
    if (!chunk) return nullptr;
    TaskRecord& record = chunk->records[number % kTasks];
    return record.is_live() ? &record : nullptr;
  }

  void end(int64_t number);

  size_t live() const { return live_; }
  // Return a number that is not larger than the number of any live task.
  int64_t oldest() const {
    return chunks_.empty() || (chunks_.front() && chunks_.front()->live == 0) ? next_ : first_;
  }

 private:
  static constexpr int64_t kTasks = 512;
  static constexpr size_t kBlockBytes = size_t{1} << 16;
  static constexpr size_t kSpares = 4;

  struct Chunk {
    TaskRecord records[kTasks];
    std::vector<std::unique_ptr<std::byte[]>> blocks;
    size_t used = kBlockBytes;  // bytes used in the last block
    uint32_t live = 0;

    std::byte* take(size_t bytes);
  };

  Chunk& chunk_of(int64_t number);
  void keep_spare(std::unique_ptr<Chunk> chunk);

  std::deque<std::unique_ptr<Chunk>> chunks_;  // null once all its tasks have ended
  std::vector<std::unique_ptr<Chunk>> spares_;
  int64_t first_ = 0;  // number of the first task of chunks_.front()
  int64_t next_ = 0;
  size_t live_ = 0;
};

// Return the number of bytes that hold the uses of `tensors` tensors: a multiple of 8.
constexpr size_t use_bytes(size_t tensors) {
  return (tensors + 7) & ~size_t{7};
}

// Return the address and size of the blob of member `member`.
struct BlobPlace {
  std::byte* data;
  uint32_t bytes;
};
BlobPlace blob_of(const TaskRecord& record, int32_t member);

// Write the uses of the tensors, which follow the blob, into the blob. If `receives_use` is false,
// write zeros.
void write_uses(const BlobPlace& blob, bool receives_use);

}  // namespace pto::hierarchy
