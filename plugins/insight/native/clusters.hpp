// The order that the allocation of clusters implies; see edges.hpp.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace pto::insight {

class ClusterOrder {
 public:
  explicit ClusterOrder(uint32_t blocks) : blocks_(blocks) {}

  void scope_begin() { ++depth_; }
  // Free the clusters that the scope has allocated.
  void scope_end();
  void allocate(int64_t group);
  void free(int64_t group);
  // Call visit(task) for each task that ends before `task` starts, because it is on this cluster.
  template <class Visit>
  void put(int64_t group, uint32_t task, Visit visit) {
    Group& here = groups_[group];
    for (const uint32_t before : here.after) visit(before);
    here.tasks.push_back(task);
  }

 private:
  struct Group {
    uint32_t depth = 0;
    bool is_held = false;
    std::vector<uint32_t> after;
    std::vector<uint32_t> tasks;
  };

  uint32_t blocks_;
  uint32_t depth_ = 0;
  uint32_t held_ = 0;
  std::unordered_map<int64_t, Group> groups_;
  std::vector<int64_t> open_;    // groups that are held
  std::vector<uint32_t> freed_;  // tasks of freed groups, without those that others of them imply
};

}  // namespace pto::insight
