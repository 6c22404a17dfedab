// The live allocations in the memory of each child: memory of chips, or buffers of Workers on other
// hosts. A task that uses such memory is pinned to the child.
//
// Two chips may return the same address from malloc, so an allocation is identified by (child,
// address). If a child is lost, its allocations are removed. Use with the GIL held. Only submits
// with child memory use this class.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arguments/task_args.hpp"
#include "driver/driver.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

// The places for children, as the program numbers them. A place is empty until a Worker joins, and
// after it has left; only places of the kind NEXT_LEVEL are ever empty.
//
// Call with the GIL held.
class ChildPlaces {
 public:
  explicit ChildPlaces(std::span<const ChildConfiguration> children) {
    for (const ChildConfiguration& child : children) {
      all_[static_cast<size_t>(child.kind)].push_back(static_cast<int32_t>(kinds_.size()));
      kinds_.push_back(child.kind);
    }
    present_ = all_;
  }

  // Return the places of a kind. The index of a place is the program's number of its child.
  std::span<const int32_t> all(Kind kind) const { return all_[static_cast<size_t>(kind)]; }
  // Return the places of a kind that have a child, in ascending order.
  std::span<const int32_t> present(Kind kind) const { return present_[static_cast<size_t>(kind)]; }
  bool has_empty() const { return has_empty_; }
  bool is_present(int32_t child) const {
    const auto& found = present_[static_cast<size_t>(kinds_[static_cast<size_t>(child)])];
    return std::binary_search(found.begin(), found.end(), child);
  }

  void set_present(int32_t child, bool is_present) {
    auto& found = present_[static_cast<size_t>(kinds_.at(static_cast<size_t>(child)))];
    std::erase(found, child);
    if (is_present) found.insert(std::lower_bound(found.begin(), found.end(), child), child);
    has_empty_ = present_ != all_;
  }

  // Return the program's numbers of the children of a kind, for messages: "0 to 3", or "0, 2".
  std::string numbers(Kind kind) const {
    const auto places = all(kind);
    std::string text;
    size_t count = 0;
    size_t last = 0;
    for (size_t number = 0; number < places.size(); ++number) {
      if (!is_present(places[number])) continue;
      text += (text.empty() ? "" : ", ") + std::to_string(number);
      count += 1;
      last = number;
    }
    return count > 0 && count == last + 1 ? "0 to " + std::to_string(last) : text;
  }

 private:
  std::vector<Kind> kinds_;                  // the kind of each child
  std::array<std::vector<int32_t>, 2> all_;  // by kind
  std::array<std::vector<int32_t>, 2> present_;
  bool has_empty_ = false;
};

struct SubmitCall;

class ChildMemory {
 public:
  // `is_of_chips`: whether the children are chips, for messages.
  explicit ChildMemory(bool is_of_chips) : is_of_chips_(is_of_chips) {}

  void add(int32_t child, uint64_t address, uint64_t bytes);
  // Remove an allocation, if it exists.
  void remove(int32_t child, uint64_t address);
  void remove_all(int32_t child) { allocations_.erase(child); }

  // Return whether one allocation of the child contains [address, address + bytes). `bytes` 0
  // counts as 1.
  bool holds(int32_t child, uint64_t address, uint64_t bytes) const;

  // For each tensor in child memory, write the child into the tensor, and pin the task or group
  // member to this child. `candidates`: all children with such memory. Raises UsageError if the
  // memory belongs to no child, if a task uses memory of several children, or if it is pinned to
  // another child.
  void place(SubmitCall& call, std::span<const int32_t> candidates) const;

  // Record that these tasks use the memory of the tensors.
  void add_uses(std::span<const TensorAccess> tensors, const TaskRange& tasks, int64_t oldest_live);
  void add_use(int32_t child, uint64_t address, const TaskRange& tasks, int64_t oldest_live);
  // Return an unfinished task that uses the allocation, or kNone.
  int64_t user(int32_t child, uint64_t address, Driver& driver) const;

  // As TaskRange::last: all tasks from number `first` to the end of their run.
  static constexpr int64_t kUntilRunEnds = INT64_MAX;

 private:
  struct Allocation {
    uint64_t end;
    std::vector<TaskRange> uses;
    size_t prune_at = 64;
  };
  using Allocations = std::map<uint64_t, Allocation>;  // key: the address

  const Allocation* find(int32_t child, uint64_t address, uint64_t bytes) const;
  std::vector<int32_t> holders(const pto_tensor& tensor, uint64_t bytes) const;
  int32_t child_of(const TaskArgs& args, int32_t pin, const std::string& member,
                   bool is_hint) const;
  void check_holders(const TaskArgs& args, uint32_t index, const std::vector<int32_t>& found,
                     int32_t pin, const std::string& member) const;

  std::string noun() const { return is_of_chips_ ? "chip" : "child"; }
  std::string names_of(const std::vector<int32_t>& children) const;
  void check_distinct(const std::vector<int32_t>& pins) const;
  void refuse_sub(std::span<TaskArgs* const> args) const;

  const bool is_of_chips_;
  std::map<int32_t, Allocations> allocations_;
};

}  // namespace pto::worker
