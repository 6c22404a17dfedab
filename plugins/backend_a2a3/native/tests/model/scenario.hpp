// A model of the chip's memory, and an enumeration of all its executions at small sizes.
//
// Agents are ordinary functions whose accesses to shared memory and registers are calls of
// model::perform(). An agent is replayed: its state is the list of the values that it has received
// (its log), so the enumerator can continue it from any state. A state of the machine consists of
// the logs, the memory, the registers, and for each agent a cache and a buffer of stores. The
// enumerator visits each state once and takes every possible step from it.
//
// Rules:
// - A line has 64 bytes. A cache of an agent is coherent with nothing, except that a snooped line
//   of an agent is dropped when another agent writes it to memory. Lines are filled and evicted at
//   any time. An eviction writes a changed line to memory as a whole.
// - Stores, cleans and register stores wait in the buffer of the agent. They leave it in any order,
//   except that fences, items of one line, and items of one register page keep their order.
// - A load may be made early, at any time after the last load fence of the agent.
//
// Spontaneous fills, evictions of unchanged lines and early loads are chosen as late as possible:
// an unchanged line that equals memory counts as absent, and when memory changes, each other agent
// may have the old value in its cache, or an early load of it, or both. The executions are the same
// as with a fill or an eviction at any step, and there are far fewer states.
//
// A state is stuck if the end cannot be reached from it without luck: without an eviction, and
// without an early load. Agents that poll return to the state at the head of their loop.
//
// Bounds: 4 agents, 10 lines, 8 registers; the stores that one copy makes to one line are one step;
// instructions are fetched in order, and a register is read when the load is made.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace model {

constexpr int kAgents = 4;
constexpr int kLines = 10;
constexpr int kRegisters = 8;
constexpr uint64_t kLineBytes = 64;
constexpr int kWords = 16;  // of 32 bits, in a line

using Line = std::array<uint32_t, kWords>;

struct Register {
  uint64_t address;
  int page;          // register stores to one page keep their order
  uint32_t initial;  // value
  int enabler =
      -1;  // a register that must have the value `enabled`, else a store is lost; -1: none
  uint32_t enabled = 0;
};

struct Op {
  enum Kind {
    load,            // line, word, size
    store,           // line, mask, data
    clean,           // lines
    invalidate,      // lines
    order_stores,    //
    order_loads,     //
    load_register,   // line: its index
    store_register,  // line: its index, value
    write_memory,    // past the cache: line, mask, data
    read_memory,     // past the cache: line, word, size
    wait_register,   // until a register is not 0
    join,            // until agent `line` has ended
    retry,           // go back to the state after `value` steps
    violation,       // text
    end
  };
  Kind kind = end;
  int line = 0;
  uint32_t lines = 0;
  int word = 0;
  int size = 0;
  uint32_t mask = 0;
  Line data{};
  uint64_t value = 0;
  std::string text;
};

struct Agent {
  std::string name;
  std::function<void()> program;
  uint32_t lines = 0;    // that it may touch; others are a fault of the scenario
  uint32_t snooped = 0;  // of these, the lines that are dropped when another agent writes them
};

struct Scenario {
  std::vector<uint64_t> lines;  // addresses
  std::vector<Register> registers;
  std::vector<Agent> agents;
  bool is_closed = false;   // the AICPU opens no core
  uint32_t restless = ~0u;  // lines that are filled, evicted and loaded early spontaneously

  int line(uint64_t address) const {
    const uint64_t start = address / kLineBytes * kLineBytes;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i] == start) return static_cast<int>(i);
    }
    std::fprintf(stderr, "the scenario has no line at address %#llx\n",
                 static_cast<unsigned long long>(address));
    std::abort();
  }
  int find_register(uint64_t address) const {
    for (size_t i = 0; i < registers.size(); ++i) {
      if (registers[i].address == address) return static_cast<int>(i);
    }
    std::fprintf(stderr, "the scenario has no register at address %#llx\n",
                 static_cast<unsigned long long>(address));
    std::abort();
  }
};

// The agent that is replayed now.
struct Replay {
  const Scenario* scenario;
  int agent;
  std::vector<uint64_t> log;
  size_t next = 0;
  // Of a core in a scenario that is closed.
  uint32_t polls = 0;
  size_t head = 0;
};

inline Replay* replay = nullptr;

struct Stop {
  Op op;
};

// Makes one step of the agent, and returns its value.
inline uint64_t perform(const Op& op) {
  if (replay->next < replay->log.size()) return replay->log[replay->next++];
  throw Stop{op};
}

}  // namespace model
