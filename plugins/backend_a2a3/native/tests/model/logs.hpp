// The contents of lines and the logs of agents, as numbers: equal ones have equal numbers.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>

#include "scenario.hpp"

namespace model {

class Contents {
 public:
  // Contents of lines have numbers from 1.
  uint32_t number(const Line& line) {
    const auto [found, is_new] =
        numbers_.emplace(line, static_cast<uint32_t>(contents_.size() + 1));
    if (is_new) contents_.push_back(line);
    return found->second;
  }
  const Line& content(uint32_t number) const { return contents_[number - 1]; }

  uint32_t overlaid(uint32_t base, uint32_t with, uint32_t mask) {
    Line line = content(base);
    const Line& top = content(with);
    for (int word = 0; word < kWords; ++word) {
      if (mask >> word & 1) line[word] = top[word];
    }
    return number(line);
  }

  uint64_t read(uint32_t number, const Op& op) const {
    const Line& line = content(number);
    const uint64_t low = line[op.word];
    return op.size == 4 ? low : low | uint64_t{line[op.word + 1]} << 32;
  }

 private:
  std::map<Line, uint32_t> numbers_;
  std::vector<Line> contents_;
};

// The logs form a tree. Each agent has a root, which is its empty log.
class Logs {
 public:
  explicit Logs(const Scenario& scenario) : scenario_(scenario) {
    for (int agent = 0; agent < static_cast<int>(scenario.agents.size()); ++agent) {
      logs_.push_back({0, 0, 0, agent});
    }
  }
  uint32_t root(int agent) const { return static_cast<uint32_t>(agent); }
  bool has_ended(uint32_t log) { return next(log).kind == Op::end; }

  // The next step of an agent with this log.
  const Op& next(uint32_t log) {
    const auto found = ops_.find(log);
    if (found != ops_.end()) return found->second;
    Replay play{&scenario_, logs_[log].agent, {}, 0};
    for (uint32_t at = log; logs_[at].length != 0; at = logs_[at].parent) {
      play.log.insert(play.log.begin(), logs_[at].value);
    }
    Op op;
    replay = &play;
    try {
      scenario_.agents[static_cast<size_t>(play.agent)].program();
    } catch (const Stop& stop) {
      op = stop.op;
    }
    replay = nullptr;
    return ops_.emplace(log, op).first->second;
  }

  // The log after one more step. An agent that retries goes back.
  uint32_t extended(uint32_t log, uint64_t value) {
    const auto [found, is_new] =
        children_.emplace(std::make_pair(log, value), static_cast<uint32_t>(logs_.size()));
    if (is_new) logs_.push_back({log, logs_[log].length + 1, value, logs_[log].agent});
    uint32_t child = found->second;
    while (next(child).kind == Op::retry) {
      const uint64_t length = next(child).value;
      while (logs_[child].length > length) child = logs_[child].parent;
    }
    return child;
  }

 private:
  struct Log {
    uint32_t parent;
    uint32_t length;
    uint64_t value;
    int agent;
  };
  const Scenario& scenario_;
  std::vector<Log> logs_;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> children_;
  std::unordered_map<uint32_t, Op> ops_;
};

}  // namespace model
