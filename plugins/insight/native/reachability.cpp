#include "reachability.hpp"

#include <algorithm>

namespace pto::insight {
namespace {

void move_all(std::vector<uint32_t>& from, std::vector<uint32_t>& to) {
  if (to.size() < from.size()) to.swap(from);
  to.insert(to.end(), from.begin(), from.end());
  from.clear();
}

uint32_t take_last(std::vector<uint32_t>& chains) {
  if (chains.empty()) return kNone;
  const uint32_t chain = chains.back();
  chains.pop_back();
  return chain;
}

}  // namespace

Reachability::Reachability(const std::vector<uint32_t>& first,
                           const std::vector<uint32_t>& producers)
    : redundant_(producers.size(), false) {
  build_trees(first, producers);
  build_chains(first, producers);
  const auto count = static_cast<uint32_t>(first.size() - 1);
  joined_.assign(chains_, 0);
  first_entry_.assign(count + 1, 0);
  for (uint32_t task = 0; task < count; ++task) {
    const uint32_t many = first[task + 1] - first[task];
    if (many > 1) build_clock(task, producers.data() + first[task], many, first[task]);
    first_entry_[task + 1] = entries_.size();
  }
}

void Reachability::build_trees(const std::vector<uint32_t>& first,
                               const std::vector<uint32_t>& producers) {
  const auto count = static_cast<uint32_t>(first.size() - 1);
  parent_.resize(count);
  root_.resize(count);
  std::vector<uint32_t> size(count, 1);
  for (uint32_t task = 0; task < count; ++task) {
    const bool has_one = first[task + 1] - first[task] == 1;
    parent_[task] = has_one ? producers[first[task]] : kNone;
    root_[task] = has_one ? root_[parent_[task]] : task;
  }
  for (uint32_t task = count; task-- > 0;) {
    if (parent_[task] != kNone) size[parent_[task]] += size[task];
  }
  enter_.resize(count);
  exit_.resize(count);
  std::vector<uint32_t> next(count);  // pre-order number of the next child
  uint32_t number = 0;
  for (uint32_t task = 0; task < count; ++task) {
    uint32_t& place = parent_[task] == kNone ? number : next[parent_[task]];
    enter_[task] = place;
    place += size[task];
    exit_[task] = place;
    next[task] = enter_[task] + 1;
  }
}

// A chain is free for a task if the last task of the chain is ordered before it. Each consumer of a
// task may take one of the free chains of the task; the last consumer takes the rest.
void Reachability::build_chains(const std::vector<uint32_t>& first,
                                const std::vector<uint32_t>& producers) {
  const auto count = static_cast<uint32_t>(first.size() - 1);
  std::vector<uint32_t> height(count, 0);
  std::vector<uint32_t> heir(count, kNone);  // the consumer with the longest path below it
  for (uint32_t task = count; task-- > 0;) {
    for (uint32_t place = first[task]; place < first[task + 1]; ++place) {
      const uint32_t producer = producers[place];
      if (heir[producer] != kNone && height[producer] > height[task]) continue;
      heir[producer] = task;
      height[producer] = height[task] + 1;
    }
  }
  chain_.resize(count);
  position_.resize(count);
  run_.resize(count);
  std::vector<uint32_t> tail;  // last task of each chain
  std::vector<std::vector<uint32_t>> free(count);
  std::vector<uint32_t> left(count, 0);  // number of consumers that have no chain yet
  for (const uint32_t producer : producers) ++left[producer];
  for (uint32_t task = 0; task < count; ++task) {
    uint32_t chain = kNone;
    for (uint32_t place = first[task]; place < first[task + 1]; ++place) {
      const uint32_t producer = producers[place];
      if (tail[chain_[producer]] == producer && heir[producer] == task) {
        if (chain == kNone) {
          chain = chain_[producer];
        } else {
          free[task].push_back(chain_[producer]);
        }
      }
      if (--left[producer] == 0) move_all(free[producer], free[task]);
    }
    if (chain == kNone) chain = take_last(free[task]);
    for (uint32_t place = first[task]; chain == kNone && place < first[task + 1]; ++place) {
      chain = take_last(free[producers[place]]);
    }
    if (chain == kNone) {
      chain = chains_++;
      tail.push_back(kNone);
    }
    chain_[task] = chain;
    position_[task] = tail[chain] == kNone ? 0 : position_[tail[chain]] + 1;
    tail[chain] = task;
    const uint32_t parent = parent_[task];
    run_[task] = parent != kNone && chain_[parent] == chain ? run_[parent] : task;
  }
}

void Reachability::take(uint32_t chain, uint32_t last) {
  if (joined_[chain] == 0) touched_.push_back(chain);
  joined_[chain] = std::max(joined_[chain], last + 1);
}

// Add the tasks that are ordered before the task, without the task itself.
void Reachability::take_ancestors(uint32_t task) {
  uint32_t here = task;
  for (;;) {
    if (position_[here] > 0) take(chain_[here], position_[here] - 1);
    const uint32_t start = run_[here];
    if (parent_[start] == kNone) break;
    here = parent_[start];
    take(chain_[here], position_[here]);
  }
  const uint32_t root = root_[task];
  for (uint64_t entry = first_entry_[root]; entry < first_entry_[root + 1]; ++entry) {
    take(entries_[entry].chain, entries_[entry].last);
  }
}

void Reachability::build_clock(uint32_t task, const uint32_t* producers, uint32_t count,
                               uint64_t first) {
  for (uint32_t place = 0; place < count; ++place) take_ancestors(producers[place]);
  for (uint32_t place = 0; place < count; ++place) {
    const uint32_t producer = producers[place];
    redundant_[first + place] = position_[producer] < joined_[chain_[producer]];
  }
  for (uint32_t place = 0; place < count; ++place) {
    take(chain_[producers[place]], position_[producers[place]]);
  }
  if (position_[task] > 0) take(chain_[task], position_[task] - 1);
  std::sort(touched_.begin(), touched_.end());
  for (const uint32_t chain : touched_) {
    entries_.push_back({chain, joined_[chain] - 1});
    joined_[chain] = 0;
  }
  touched_.clear();
}

bool Reachability::is_before(uint32_t a, uint32_t b) const {
  if (a >= b) return false;
  if (is_in_tree_of(a, b)) return true;
  if (chain_[a] == chain_[b]) return position_[a] < position_[b];
  const uint32_t root = root_[b];
  const Entry* const begin = entries_.data() + first_entry_[root];
  const Entry* const end = entries_.data() + first_entry_[root + 1];
  const Entry* const found =
      std::lower_bound(begin, end, chain_[a],
                       [](const Entry& entry, uint32_t chain) { return entry.chain < chain; });
  return found != end && found->chain == chain_[a] && position_[a] <= found->last;
}

}  // namespace pto::insight
