// The live allocations of each chip child, and the children that tasks run on because of them.
//
// Two chips may return the same address from malloc, so an allocation is known by (child, address).
// A child that is lost loses its allocations. Used with the GIL held; only submits that name memory
// of a child come here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arguments/task_args.hpp"
#include "driver/driver.hpp"

namespace pto::hierarchy {

struct SubmitWords;

class ChildMemory {
 public:
  void add(int32_t child, uint64_t address, uint64_t bytes);
  // Does nothing where there is no such allocation.
  void remove(int32_t child, uint64_t address);
  void remove_all(int32_t child) { allocations_.erase(child); }

  // Whether an allocation of the child holds all of these bytes, and at least one.
  bool holds(int32_t child, uint64_t address, uint64_t bytes) const;

  // Writes the child of each tensor of child memory into its key, and pins the task, or each member
  // of a group, to the child whose memory it names. `chips`: all children with such memory. Raises
  // UsageError where that is no child, several children, or not the one that the program named.
  void place(const SubmitWords& words, std::span<TaskArgs* const> args, std::span<Tensor> keys,
             std::span<const int32_t> chips, std::vector<int32_t>& pins, bool* is_hint) const;

  // Remembers that these tasks name the memory of the keys.
  void add_uses(std::span<const Tensor> keys, const TaskRange& tasks, int64_t oldest_live);
  void add_use(int32_t child, uint64_t address, const TaskRange& tasks, int64_t oldest_live);
  // A task that names the allocation and has not ended, or kNone.
  int64_t user(int32_t child, uint64_t address, Driver& driver) const;

  // In add_use(): from `first` on, until the run ends in which it is the first task.
  static constexpr int64_t kUntilRunEnds = INT64_MAX;

 private:
  struct Allocation {
    uint64_t end;
    std::vector<TaskRange> uses;
    size_t prune_at = 64;
  };
  using Allocations = std::map<uint64_t, Allocation>;  // by address

  const Allocation* find(int32_t child, uint64_t address, uint64_t bytes) const;
  std::vector<int32_t> holders(const pto_tensor& tensor, uint64_t bytes) const;
  int32_t child_of(const TaskArgs& args, int32_t pin, const std::string& member,
                   bool is_hint) const;
  void check_holders(const TaskArgs& args, uint32_t index, const std::vector<int32_t>& found,
                     int32_t pin, const std::string& member) const;

  std::map<int32_t, Allocations> allocations_;
};

}  // namespace pto::hierarchy
