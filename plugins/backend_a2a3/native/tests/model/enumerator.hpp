// The enumeration of all states of a scenario.
#pragma once

#include <string>
#include <vector>

#include "logs.hpp"
#include "scenario.hpp"
#include "states.hpp"

namespace model {

// The result of an enumeration. `violation` is empty if all executions are right.
struct Result {
  uint64_t states = 0;
  uint64_t steps = 0;
  std::string violation;
  std::vector<std::string> trace;  // the steps that lead to the violation
};

class Enumerator {
 public:
  explicit Enumerator(const Scenario& scenario) : scenario_(scenario), logs_(scenario) {}

  Result run() {
    index_ = 0;
    add(start(), Luck::start, {});
    while (graph_.has_pending() && result_.violation.empty()) {
      const auto [index, state] = graph_.take();
      expand(index, state);
    }
    const int64_t stuck = result_.violation.empty() ? graph_.find_stuck() : -1;
    if (stuck >= 0) report(static_cast<uint32_t>(stuck), "the agents wait for ever");
    result_.states = graph_.size();
    result_.steps = graph_.steps();
    return result_;
  }

 private:
  int agents() const { return static_cast<int>(scenario_.agents.size()); }
  int lines() const { return static_cast<int>(scenario_.lines.size()); }
  bool may_touch(int agent, int line) const { return scenario_.agents[agent].lines >> line & 1; }
  bool is_snooped(int agent, int line) const { return scenario_.agents[agent].snooped >> line & 1; }

  bool is_quiet(int line) const { return (scenario_.restless >> line & 1) == 0; }

  State start() {
    State state{};
    for (int line = 0; line < lines(); ++line) state.memory[line] = contents_.number(Line{});
    for (size_t i = 0; i < scenario_.registers.size(); ++i) {
      state.registers[i] = scenario_.registers[i].initial;
    }
    for (int agent = 0; agent < agents(); ++agent) state.agent[agent].log = logs_.root(agent);
    return state;
  }

  // An unchanged line that equals memory counts as absent.
  void normalise(State& state) const {
    for (int agent = 0; agent < agents(); ++agent) {
      AgentState& own = state.agent[agent];
      for (int line = 0; line < lines(); ++line) {
        Copy& copy = own.copy[line];
        if (copy.dirty == 0 && copy.content == state.memory[line]) copy.content = 0;
        Early& early = own.early[line];
        if (early.content == state.memory[line]) early.mask = 0;
        if (early.mask == 0) early.content = 0;
      }
    }
  }

  void add(State state, Luck luck, const Step& step) {
    normalise(state);
    graph_.add(state, index_, luck, step);
  }

  void expand(uint32_t index, const State& state) {
    index_ = index;
    for (int agent = 0; agent < agents(); ++agent) {
      const Op& op = logs_.next(state.agent[agent].log);
      if (is_local(state.agent[agent], op)) return execute(state, agent, op);
    }
    bool has_ended = true;
    for (int agent = 0; agent < agents() && result_.violation.empty(); ++agent) {
      const Op& op = logs_.next(state.agent[agent].log);
      if (op.kind == Op::violation) return report(index, op.text);
      if (op.kind != Op::end) has_ended = false;
      execute(state, agent, op);
      drain(state, agent);
      evict(state, agent);
    }
    if (has_ended) graph_.end(index);
  }

  // Returns whether the step can be taken before all other steps: no execution is lost, because the
  // step only appends to the agent's own buffer, or drops what later choices need not have filled.
  static bool is_local(const AgentState& own, const Op& op) {
    switch (op.kind) {
      case Op::store:
      case Op::clean:
      case Op::order_stores:
      case Op::order_loads:
      case Op::store_register:
        return true;
      case Op::invalidate:
        for (int line = 0; line < kLines; ++line) {
          if (op.lines >> line & 1 && own.has_changed(line)) return false;
        }
        return true;
      default:
        return false;
    }
  }

  void report(uint32_t index, const std::string& text) {
    result_.violation = text;
    for (const Step& step : graph_.path(index)) {
      result_.trace.push_back(scenario_.agents[static_cast<size_t>(step.agent)].name + ": " +
                              step.what + " " + std::to_string(step.where));
    }
  }

  // The agent receives the value, and the machine is in this state.
  void go(State state, int agent, const Op& op, uint64_t value, Luck luck, const char* what) {
    state.agent[agent].log = logs_.extended(state.agent[agent].log, value);
    add(state, luck, {agent, what, op.line});
  }

  void execute(const State& state, int agent, const Op& op) {
    State after = state;
    AgentState& own = after.agent[agent];
    switch (op.kind) {
      case Op::load:
        return load(state, agent, op);
      case Op::store:
        own.early[op.line].mask &= ~op.mask;
        own.push({Item::store, static_cast<uint8_t>(op.line), static_cast<uint16_t>(op.mask),
                  contents_.number(op.data)});
        return go(after, agent, op, 0, Luck::none, "store to line");
      case Op::clean:
        for (int line = 0; line < lines(); ++line) {
          if (op.lines >> line & 1 && own.has_changed(line)) {
            own.push({Item::clean, static_cast<uint8_t>(line), 0, 0});
          }
        }
        return go(after, agent, op, 0, Luck::none, "clean");
      case Op::invalidate:
        return invalidate(state, agent, op);
      case Op::order_stores:
        if (own.items != 0) own.push({Item::fence, 0, 0, 0});
        return go(after, agent, op, 0, Luck::none, "order stores");
      case Op::order_loads:
        for (Early& early : own.early) early.mask = 0;
        return go(after, agent, op, 0, Luck::none, "order loads");
      case Op::load_register:
        return go(after, agent, op, state.registers[op.line], Luck::none, "load register");
      case Op::store_register:
        own.push({Item::set_register, static_cast<uint8_t>(op.line), 0,
                  static_cast<uint32_t>(op.value)});
        return go(after, agent, op, 0, Luck::none, "store register");
      case Op::write_memory:
        own.log = logs_.extended(own.log, 0);
        return write(after, agent, op.line,
                     contents_.overlaid(state.memory[op.line], contents_.number(op.data), op.mask),
                     Luck::none, "write");
      case Op::read_memory:
        return go(after, agent, op, contents_.read(state.memory[op.line], op), Luck::none,
                  "read memory");
      case Op::wait_register:
        if (state.registers[op.line] == 0) return;
        return go(after, agent, op, 0, Luck::none, "wait for register");
      case Op::join:
        if (!logs_.has_ended(state.agent[op.line].log)) return;
        return go(after, agent, op, 0, Luck::none, "join");
      case Op::retry:
      case Op::violation:
      case Op::end:
        return;
    }
  }

  void load(const State& state, int agent, const Op& op) {
    const AgentState& own = state.agent[agent];
    const uint32_t words = op.size == 4 ? 1u << op.word : 3u << op.word;
    const auto seen = [&](uint32_t base) {
      for (uint32_t i = 0; i < own.items; ++i) {
        const Item& item = own.buffer[i];
        if (item.kind == Item::store && item.where == op.line) {
          base = contents_.overlaid(base, item.value, item.mask);
        }
      }
      return contents_.read(base, op);
    };
    State after = state;
    if ((own.early[op.line].mask & words) == words) {
      after.agent[agent].early[op.line].mask &= ~words;
      go(after, agent, op, seen(own.early[op.line].content), Luck::needed, "early load of line");
    }
    after = state;
    after.agent[agent].early[op.line].mask &= ~words;
    const Copy copy = own.copy[op.line];
    const uint32_t base = copy.content != 0 ? copy.content : state.memory[op.line];
    go(after, agent, op, seen(base), Luck::none, "load of line");
    if (copy.content == 0 || copy.dirty != 0) return;
    after.agent[agent].copy[op.line] = {};
    go(after, agent, op, seen(state.memory[op.line]), Luck::needed, "eviction, and load of line");
  }

  // Waits for buffered stores and cleans of the lines. A changed line is lost; that it is written
  // back first is the eviction before this step.
  void invalidate(State state, int agent, const Op& op) {
    AgentState& own = state.agent[agent];
    for (int line = 0; line < lines(); ++line) {
      if (!(op.lines >> line & 1)) continue;
      if (own.has_item(line)) return;
      own.copy[line] = {};
    }
    go(state, agent, op, 0, Luck::none, "invalidate");
  }

  void drain(const State& state, int agent) {
    const AgentState& own = state.agent[agent];
    for (uint32_t i = 0; i < own.items; ++i) {
      if (own.buffer[i].kind == Item::fence) return;
      if (is_free(own, i)) complete(state, agent, i);
    }
  }

  // Returns whether no earlier item must leave first. There is no fence before item i.
  bool is_free(const AgentState& own, uint32_t i) const {
    const Item& item = own.buffer[i];
    for (uint32_t k = 0; k < i; ++k) {
      const Item& earlier = own.buffer[k];
      const bool are_registers =
          item.kind == Item::set_register && earlier.kind == Item::set_register;
      if (are_registers && page(item.where) == page(earlier.where)) return false;
      const bool are_lines = item.kind <= Item::clean && earlier.kind <= Item::clean;
      if (!are_lines || item.where != earlier.where) continue;
      if (item.kind == Item::clean || earlier.kind == Item::clean) return false;
      if ((item.mask & earlier.mask) != 0) return false;
    }
    return true;
  }
  int page(int index) const { return scenario_.registers[static_cast<size_t>(index)].page; }

  void complete(const State& state, int agent, uint32_t i) {
    const Item item = state.agent[agent].buffer[i];
    State after = state;
    AgentState& own = after.agent[agent];
    own.take(i);
    if (item.kind == Item::set_register) {
      const int enabler = scenario_.registers[item.where].enabler;
      const uint32_t enabled = scenario_.registers[item.where].enabled;
      if (enabler < 0 || state.registers[enabler] == enabled) {
        after.registers[item.where] = item.value;
      }
      return add(after, Luck::none, {agent, "completed store to register", item.where});
    }
    Copy& copy = own.copy[item.where];
    if (item.kind == Item::clean) {
      if (copy.dirty != 0) return write_back(after, agent, item.where, Luck::none, "clean of line");
      return add(after, Luck::none, {agent, "clean without effect of line", item.where});
    }
    const bool is_stale = copy.content != 0 && copy.dirty == 0;
    const uint32_t base = copy.content != 0 ? copy.content : state.memory[item.where];
    copy = {contents_.overlaid(base, item.value, item.mask), copy.dirty | item.mask};
    own.early[item.where].mask &= ~uint32_t{item.mask};
    add(after, Luck::none, {agent, "completed store to line", item.where});
    if (!is_stale) return;
    copy.content = contents_.overlaid(state.memory[item.where], item.value, item.mask);
    add(after, Luck::needed, {agent, "eviction, and completed store to line", item.where});
  }

  void evict(const State& state, int agent) {
    for (int line = 0; line < lines(); ++line) {
      if (state.agent[agent].copy[line].dirty == 0 || is_quiet(line)) continue;
      write_back(state, agent, line, Luck::needed, "eviction of changed line");
    }
  }

  void write_back(State state, int agent, int line, Luck luck, const char* what) {
    Copy& copy = state.agent[agent].copy[line];
    const uint32_t value = copy.content;
    copy = {};
    write(state, agent, line, value, luck, what);
  }

  // Memory changes. Each other agent may have the old value in its cache or as an early load.
  void write(const State& state, int agent, int line, uint32_t value, Luck luck, const char* what,
             int other = 0) {
    const auto has_ended = [&] { return logs_.has_ended(state.agent[other].log); };
    while (other < agents() && (other == agent || !may_touch(other, line) || has_ended())) ++other;
    if (other >= agents() || value == state.memory[line]) {
      State after = state;
      after.memory[line] = value;
      return add(after, luck, {agent, what, line});
    }
    const AgentState& own = state.agent[other];
    const uint32_t old = state.memory[line];
    const bool may_fill =
        !is_quiet(line) && own.copy[line].content == 0 && !is_snooped(other, line);
    const bool may_load = !is_quiet(line) && own.copy[line].dirty == 0;
    for (int fill = 0; fill <= int{may_fill}; ++fill) {
      for (int load = 0; load <= int{may_load}; ++load) {
        State after = state;
        if (fill != 0) after.agent[other].copy[line] = {old, 0};
        if (load != 0) after.agent[other].early[line] = {old, 0xFFFF};
        if (is_snooped(other, line) && own.copy[line].dirty == 0) {
          after.agent[other].copy[line] = {};
        }
        write(after, agent, line, value, luck, what, other + 1);
      }
    }
  }

  const Scenario& scenario_;
  Contents contents_;
  Logs logs_;
  Graph graph_;
  Result result_;
  uint32_t index_ = 0;  // of the state whose steps are taken
};

}  // namespace model
