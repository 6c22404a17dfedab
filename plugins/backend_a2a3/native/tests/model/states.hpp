// The states of the machine, and the graph that they form.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "scenario.hpp"

namespace model {

constexpr int kItems = 20;  // in the buffer of an agent

struct Item {
  enum Kind : uint8_t { store, clean, set_register, fence };
  Kind kind;
  uint8_t where;  // line or register
  uint16_t mask;
  uint32_t value;  // of the register, or the number of a line's content
};
struct Copy {
  uint32_t content;  // 0: absent
  uint32_t dirty;    // words
};
struct Early {
  uint32_t content;
  uint32_t mask;  // words that may be used; 0: none
};
struct AgentState {
  uint32_t log;
  uint32_t items;
  Item buffer[kItems];
  Copy copy[kLines];
  Early early[kLines];

  bool has_item(int line) const {
    for (uint32_t i = 0; i < items; ++i) {
      const Item& item = buffer[i];
      if (item.kind <= Item::clean && item.where == line) return true;
    }
    return false;
  }
  bool has_changed(int line) const { return copy[line].dirty != 0 || has_item(line); }

  void push(const Item& item) {
    if (items == kItems) {
      std::fprintf(stderr, "the buffer of an agent is too small for the scenario\n");
      std::abort();
    }
    buffer[items++] = item;
  }

  void take(uint32_t i) {
    for (uint32_t k = i + 1; k < items; ++k) buffer[k - 1] = buffer[k];
    buffer[--items] = {};
    while (items != 0 && buffer[0].kind == Item::fence) take(0);
  }
};
struct State {
  uint32_t memory[kLines];
  uint32_t registers[kRegisters];
  AgentState agent[kAgents];
};

struct Step {
  int agent;
  const char* what;
  int where;
};

enum class Luck { none, needed, start };

class Graph {
 public:
  bool has_pending() const { return !pending_.empty(); }
  std::pair<uint32_t, State> take() {
    const std::pair<uint32_t, State> last = pending_.back();
    pending_.pop_back();
    return last;
  }
  uint64_t size() const { return seen_.size(); }
  uint64_t steps() const { return steps_; }
  void end(uint32_t index) { ends_.push_back(index); }

  // Adds a state, and the step that leads to it.
  void add(const State& state, uint32_t from, Luck luck, const Step& step) {
    const auto* bytes = reinterpret_cast<const uint32_t*>(&state);
    Key key{1469598103934665603u, 0x9E3779B97F4A7C15u};
    for (size_t i = 0; i < sizeof state / sizeof *bytes; ++i) {
      key.first = (key.first ^ bytes[i]) * 1099511628211u;
      key.first ^= key.first >> 29;
      key.second = (key.second + bytes[i]) * 0xBF58476D1CE4E5B9u;
      key.second ^= key.second >> 32;
    }
    const auto [found, is_new] = seen_.emplace(key, static_cast<uint32_t>(visits_.size()));
    if (is_new) {
      visits_.push_back({from, step});
      pending_.push_back({found->second, state});
    }
    if (luck == Luck::start) return;
    ++steps_;
    if (luck == Luck::none) edges_.push_back({found->second, from});
  }

  // The steps that lead to a state.
  std::vector<Step> path(uint32_t index) const {
    std::vector<Step> steps;
    for (uint32_t at = index; at != 0; at = visits_[at].from) {
      steps.insert(steps.begin(), visits_[at].step);
    }
    return steps;
  }

  // Returns a state from which no end can be reached without luck, or -1.
  int64_t find_stuck() const {
    std::vector<uint32_t> first(visits_.size() + 1), from(edges_.size());
    for (const auto& edge : edges_) ++first[edge.first + 1];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<uint32_t> place = first;
    for (const auto& edge : edges_) from[place[edge.first]++] = edge.second;
    std::vector<bool> is_good(visits_.size());
    std::vector<uint32_t> stack = ends_;
    for (const uint32_t end : ends_) is_good[end] = true;
    while (!stack.empty()) {
      const uint32_t at = stack.back();
      stack.pop_back();
      for (uint32_t i = first[at]; i < first[at + 1]; ++i) {
        if (is_good[from[i]]) continue;
        is_good[from[i]] = true;
        stack.push_back(from[i]);
      }
    }
    for (uint32_t i = 0; i < is_good.size(); ++i) {
      if (!is_good[i]) return i;
    }
    return -1;
  }

 private:
  struct Visit {
    uint32_t from;
    Step step;
  };
  using Key = std::pair<uint64_t, uint64_t>;
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.first; }
  };

  uint64_t steps_ = 0;
  std::unordered_map<Key, uint32_t, KeyHash> seen_;  // a hash of 128 bits, and the index
  std::vector<Visit> visits_;
  std::vector<std::pair<uint32_t, State>> pending_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // to, from; without luck
  std::vector<uint32_t> ends_;
};

}  // namespace model
