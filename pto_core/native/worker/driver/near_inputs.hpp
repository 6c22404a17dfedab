// The placement policy near_inputs: it prefers the child that has the inputs of the task.
//
// A child on another host lacks the input bytes of which RemoteCopies records no copy there; a
// child of this host lacks no bytes. The policy chooses the child with the fewest tasks in flight,
// and counts 16 MiB of missing bytes as one more task, 32 MiB or more as two. So copies give a
// child at most two tasks more than another child, and no child stays idle because of them.
//
// The driver reports the tasks that it sends. Only the thread with the driver role uses the object
// after attach().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "driver/records.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

struct ByteRange {
  uint64_t begin;
  uint64_t end;
};

// The memory of which children on other hosts have copies, derived from the tasks that were sent.
//
// The data may be outdated: the program can write the memory between two runs, and a host can evict
// a copy. So use it only to choose between children. The parts do not overlap. One thread at a time
// may use it.
class RemoteCopies {
 public:
  // The child reads the range, so it has the content from now on.
  void add(ByteRange range, int32_t child);
  // The child writes the range, so no other child has the content any more. kNone: a child of this
  // host writes it.
  void replace(ByteRange range, int32_t child);
  // The memory of the child is lost.
  void forget(int32_t child);
  // Add to `held[child]` the bytes of the range that the child has, for each child.
  void count(ByteRange range, std::span<uint64_t> held) const;

 private:
  struct Part {
    uint64_t end;
    std::vector<int32_t> children;
  };
  using Parts = std::map<uint64_t, Part>;

  // With more parts, all are dropped. Then tasks are placed as if no child had a copy.
  static constexpr size_t kMost = size_t{1} << 16;

  // Split the part that contains `at`; return the first part that begins at `at` or later.
  Parts::iterator split(uint64_t at);

  Parts parts_;  // by their first address
};

class NearInputs {
 public:
  static constexpr uint64_t kTaskBytes = uint64_t{1} << 24;
  static constexpr uint64_t kMostTasks = 2;

  // Use the tasks of a driver from now on. The arguments must exist until detach().
  void attach(Records& records, const std::vector<ChildConfiguration>& children,
              const Catalogue* catalogue = nullptr);
  void detach() { records_ = nullptr; }

  // A member of a task was sent to the child.
  void sent(const SentTask& record, int32_t member, int32_t child);
  void lost(int32_t child) { copies_.forget(child); }
  // Return the child for a task, as a Policy does. A task without a record has no inputs.
  int32_t pick(std::span<const Candidate> candidates, int32_t preferred, int64_t task);
  // The same facts for a policy of the program: the callable of the task, the bytes of its inputs,
  // and the number of them that each child has.
  struct Facts {
    std::string callable;
    uint64_t input_bytes = 0;
    std::vector<uint64_t> held_bytes;  // by child in `children`
  };
  Facts facts(std::span<const int32_t> children, int64_t task);

 private:
  // Smaller tensors travel with their task, so they are not counted.
  static constexpr uint64_t kSmallest = 4096;

  // Return the bytes of the inputs of a task; set held_.
  uint64_t count(const SentTask& record);
  bool is_remote(int32_t child) const { return is_remote_[static_cast<size_t>(child)]; }
  // Call visit(range, use) for each tensor of a member in memory that hosts share.
  template <class Visit>
  void visit_tensors(const SentTask& record, int32_t member, Visit&& visit) const;

  Records* records_ = nullptr;
  const Catalogue* catalogue_ = nullptr;
  std::vector<bool> is_remote_;  // by child
  RemoteCopies copies_;
  std::vector<uint64_t> held_;     // of the current task, by child
  std::vector<uint64_t> missing_;  // by candidate
};

// Return the child with the lowest number of tasks, where `missing[i]` are the bytes that candidate
// i lacks. In a tie, choose the fewest tasks in flight, then the fewest missing bytes, then
// `preferred`, then the first.
int32_t nearest(std::span<const Candidate> candidates, std::span<const uint64_t> missing,
                int32_t preferred);

}  // namespace pto::worker
