// One call of a submit method, and the settings for all submits of a Worker.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "callable/live_callables.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

namespace nb = nanobind;

class VisibleMemory;
struct RunObject;
struct TaskArgs;

// A list whose first items need no memory of the heap, because a submit is called for each task.
template <class Item, size_t kInline>
class ShortList {
  static_assert(std::is_trivially_copyable_v<Item>);

 public:
  ShortList() = default;
  ShortList(const ShortList&) = delete;
  ShortList& operator=(const ShortList&) = delete;

  void push_back(const Item& item) {
    if (size_ == capacity_) reserve(2 * capacity_);
    data_[size_++] = item;
  }
  void assign(std::span<const Item> items) {
    resize(items.size());
    std::copy(items.begin(), items.end(), data_);
  }
  // Items that are added have no defined value.
  void resize(size_t size) {
    reserve(size);
    size_ = size;
  }
  void reserve(size_t capacity) {
    if (capacity <= capacity_) return;
    auto grown = std::make_unique_for_overwrite<Item[]>(capacity);
    std::copy(data_, data_ + size_, grown.get());
    heap_ = std::move(grown);
    data_ = heap_.get();
    capacity_ = capacity;
  }

  Item* data() { return data_; }
  const Item* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Item& operator[](size_t index) { return data_[index]; }
  Item* begin() { return data_; }
  Item* end() { return data_ + size_; }
  const Item* begin() const { return data_; }
  const Item* end() const { return data_ + size_; }

 private:
  alignas(Item) std::byte inline_[kInline * sizeof(Item)];
  std::unique_ptr<Item[]> heap_;
  Item* data_ = reinterpret_cast<Item*>(inline_);
  size_t size_ = 0;
  size_t capacity_ = kInline;
};

// A submit, from the arguments that the program passed to the Submission that the driver receives.
struct SubmitCall {
  SubmitCall(RunObject& run, Kind kind, bool is_group) : run(run), is_group(is_group) {
    submission.kind = kind;
  }
  SubmitCall(const SubmitCall&) = delete;
  SubmitCall& operator=(const SubmitCall&) = delete;

  Kind kind() const { return submission.kind; }

  RunObject& run;  // the run or capture of the orchestrator that was called
  const bool is_group;

  // The arguments as the binding receives them, before any check. Null: not passed.
  PyObject* handle = nullptr;
  PyObject* args = nullptr;
  PyObject* config = nullptr;
  PyObject* workers = nullptr;
  PyObject* retries = nullptr;
  PyObject* timeout_s = nullptr;
  PyObject* hint = nullptr;
  PyObject* after = nullptr;

  nb::object group;  // the members of `args`, a tuple that keeps them alive

  // The checked submit, and the lists to which it refers.
  Submission submission;
  ShortList<TaskArgs*, 4> all_args;    // one for each member
  ShortList<TensorAccess, 8> tensors;  // those of all members
  ShortList<Member, 4> members;
  ShortList<int32_t, 8> pins;
  ShortList<int64_t, 8> producers;
  // the children that have the callable, if the callable is for Workers on other hosts
  std::vector<int32_t> known_workers;
  // a copy of the callable, if its signature declares types of scalars; then `scalars` has the
  // converted scalars of all members
  std::unique_ptr<const CallableHandle> declaring;
  ShortList<uint64_t, 8> scalars;
  bool has_child_memory = false;
};

struct SubmitSettings {
  std::shared_ptr<const LiveCallables> callables;
  std::shared_ptr<VisibleMemory> memory;    // for forked children
  std::shared_ptr<VisibleMemory> attached;  // the memory that spawned children attach; null without
                                            // spawned children
  std::vector<bool> spawned;                // for each child: whether it was spawned
  CallableSpace next_level_space = CallableSpace::kLocalChip;
  uint32_t task_timeout_ms = 0;  // the time limit of tasks that are submitted without one
};

inline const char* call_of(Kind kind) {
  return kind == Kind::kSub ? "submit_sub" : "submit_next_level";
}

}  // namespace pto::worker
