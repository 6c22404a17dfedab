// The data that the driver keeps for each task until it has ended: for its frames, and for messages
// about the task.
//
// Invariant: a record is live from append() to end(). Records lie in chunks, ordered by task
// number, with the blobs of their tasks. A chunk is freed when its last task has ended. Only the
// thread that has the driver role uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arguments/visible_memory.hpp"
#include "callable/callable_handle.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

// The callables and configurations that frames identify by number. Only the thread that has the
// driver role uses them.
class Catalogue {
 public:
  // Return the number of a callable. Callables with equal digests and names have the same number.
  uint32_t add_callable(const Digest& digest, const std::string& name) {
    const std::string bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
    const auto [found, is_new] =
        callable_numbers_.try_emplace(bytes + name, static_cast<uint32_t>(callables_.size()));
    if (is_new) callables_.push_back({digest, name});
    return found->second;
  }
  uint32_t callables() const { return static_cast<uint32_t>(callables_.size()); }
  const Digest& digest(uint32_t callable) const { return callables_[callable].digest; }
  const std::string& name(uint32_t callable) const { return callables_[callable].name; }

  // Configurations are numbered from 1. add_config() adds configuration `number`. It returns false
  // and does nothing if `number` is not next_config(). `frame`: the data of the control frame that
  // sends the configuration to a child.
  uint32_t next_config() const { return static_cast<uint32_t>(configs_.size() + 1); }
  bool add_config(uint32_t number, std::string frame) {
    if (number != next_config()) return false;
    configs_.push_back(std::make_shared<const std::string>(std::move(frame)));
    return true;
  }
  const std::shared_ptr<const std::string>& config_frame(uint32_t number) const {
    return configs_[number - 1];
  }

 private:
  struct Callable {
    Digest digest;
    std::string name;
  };

  std::deque<Callable> callables_;
  std::unordered_map<std::string, uint32_t> callable_numbers_;
  std::vector<std::shared_ptr<const std::string>> configs_;
};

// The data of a task: its blobs, and the values for its frames and error messages.
struct SentTask {
  enum Flags : uint8_t { kIsLive = 1, kHasArguments = 2, kHasUses = 4, kHasKinds = 8 };

  // The blobs of all members in sequence, each aligned to 8. With kHasUses, each blob is followed
  // by one byte for each tensor: the value of pto_tensor.use, for children that receive uses.
  std::byte* blobs;
  uint32_t callable;
  uint32_t config;
  uint32_t timeout_ms;
  SubmitPosition place;
  uint16_t members;
  uint8_t flags;
  uint8_t run;  // the engine's number of its run

  bool is_live() const { return (flags & kIsLive) != 0; }
};
static_assert(sizeof(SentTask) == 32, "keep records small: there is one for each waiting task");

class Records {
 public:
  // Add the record of task `number`, which is larger than all numbers before. Reserve `bytes` for
  // its blobs. Skipped numbers have no record.
  SentTask& append(int64_t number, size_t bytes);

  // Return the record of a task, or nullptr if the task has ended or has no record.
  SentTask* find(int64_t number) {
    if (number < first_ || number >= next_) return nullptr;
    Chunk* chunk = chunks_[static_cast<size_t>(number / kTasks - first_ / kTasks)].get();
    if (!chunk) return nullptr;
    SentTask& record = chunk->records[number % kTasks];
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
    SentTask records[kTasks];
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
BlobPlace blob_of(const SentTask& record, int32_t member);

// Write the uses of the tensors, which follow the blob, into the blob. If `receives_use` is false,
// write zeros.
void write_uses(const BlobPlace& blob, bool receives_use);

// Return the memory of the host that a task uses.
std::vector<AddressSpan> memory_of(const SentTask& record);

// The cause of a failure: data from the child, or data that the host passed to add_cause().
struct Cause {
  std::string data;
  int64_t task = kNone;
  int32_t child = static_cast<int32_t>(kNone);
  int32_t member = 0;
};

// A task that did not complete, with the data from its record.
struct EndedTask {
  Result result = Result::kCompleted;
  int64_t cause = kNone;
  int64_t root = kNone;
  uint32_t callable = 0;
  uint32_t members = 0;
  uint32_t timeout_ms = 0;
  SubmitPosition place;
  std::vector<AddressSpan> memory = {};  // the memory of the host that it uses
};

struct TaskCounts {  // numbers of tasks
  int64_t submitted = 0;
  int64_t finished = 0;
  int64_t failed = 0;
  int64_t poisoned = 0;
};

// A run: the outcomes of its tasks, and its state while it is open. The driver keeps the open runs
// and the last run, and each task handle keeps its run.
//
// Only the thread that has the driver role uses the data. The GIL protects the reference counts.
struct RunOutcomes {
  uint32_t number = 0;     // the engine's number of the run, while it is open
  int64_t first_task = 0;  // number of the first task of the run
  uint32_t depth = 0;      // number of open scopes
  bool is_cancelled = false;
  TaskCounts counts;
  std::vector<std::pair<int64_t, int64_t>> failed;    // (task, cause), once the run is over
  std::vector<std::pair<int64_t, int64_t>> poisoned;  // (task, root), once the run is over
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_stopped{false};      // whether the run was open when the driver was stopped
  std::atomic<bool> is_interrupted{false};  // whether the wait for its end must cancel the run
  std::unordered_map<int64_t, EndedTask> ended;  // tasks that did not complete
  std::unordered_map<int64_t, Cause> causes;     // causes of failed frames

  const Cause* cause(int64_t number) const {
    const auto found = causes.find(number);
    return found == causes.end() ? nullptr : &found->second;
  }
};

}  // namespace pto::worker
