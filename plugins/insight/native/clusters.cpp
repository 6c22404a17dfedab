#include "clusters.hpp"

#include <algorithm>

namespace pto::insight {

void ClusterOrder::allocate(int64_t group) {
  Group& here = groups_[group];
  here.depth = depth_;
  here.is_held = true;
  if (held_ + 1 == blocks_) here.after = freed_;
  ++held_;
  open_.push_back(group);
}

void ClusterOrder::free(int64_t group) {
  Group& here = groups_[group];
  if (!here.is_held) return;
  here.is_held = false;
  --held_;
  open_.erase(std::find(open_.begin(), open_.end(), group));
  if (here.tasks.empty()) return;
  std::sort(here.after.begin(), here.after.end());
  const auto is_implied = [&](uint32_t task) {
    return std::binary_search(here.after.begin(), here.after.end(), task);
  };
  freed_.erase(std::remove_if(freed_.begin(), freed_.end(), is_implied), freed_.end());
  freed_.insert(freed_.end(), here.tasks.begin(), here.tasks.end());
}

void ClusterOrder::scope_end() {
  const std::vector<int64_t> open = open_;
  for (const int64_t group : open) {
    if (groups_[group].depth >= depth_) free(group);
  }
  if (depth_ > 0) --depth_;
}

}  // namespace pto::insight
