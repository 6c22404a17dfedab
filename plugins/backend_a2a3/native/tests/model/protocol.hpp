// The protocol between host, AICPU and cores, as scenarios of the model.
//
// `Protocol` has the templates under test: Link<Access>, Executor<Access> and State.
#pragma once

#include <vector>

#include "access.hpp"

namespace model {

constexpr uint64_t kLaunch = 1;
// Registers: core c may start. The host starts core 0, the AICPU the next core.
constexpr uint64_t kStart = 0x20000000;
constexpr uint64_t kData = kBase + kBytes / 2;
constexpr uint64_t kAddKernel = 4096;

inline pto_a2a3_cores* cores() {
  return reinterpret_cast<pto_a2a3_cores*>(kBase);
}
inline uint64_t* data(uint32_t line, uint32_t word = 0) {
  return reinterpret_cast<uint64_t*>(kData + line * kLineBytes) + word;
}

// Host and kernels use lines from kData on; line 0 has the input.
struct Task {
  pto_payload header{};
  uint64_t arguments[3];
  uint64_t addend;

  Task(uint64_t* output, uint64_t* input, uint64_t value, uint64_t kernel = kAddKernel)
      : arguments{sizeof header + sizeof arguments, address_of(output), address_of(input)},
        addend(value) {
    header.kernel = kernel;
    header.num_args = 3;
    header.relative_args = 1;
  }
};

// output = input + the value in the slot
inline void add(uint64_t kernel, uint64_t* arguments) {
  check(kernel == kAddKernel, "a core calls another address than that of the kernel");
  const auto* value = reinterpret_cast<const uint64_t*>(Core::load(&arguments[0]));
  auto* output = reinterpret_cast<uint64_t*>(Core::load(&arguments[1]));
  const auto* input = reinterpret_cast<const uint64_t*>(Core::load(&arguments[2]));
  check(is_shared(value) && is_shared(output) && is_shared(input),
        "a core reads an argument that is not an address");
  const uint64_t sum = Core::load(input) + Core::load(value);
  Core::store(output, sum);
}

// The AICPU in a launch of some cores.
template <class Protocol>
class Scheduler {
 public:
  explicit Scheduler(uint32_t count, uint32_t sequence = 0) : count_(count) {
    for (uint32_t core = 0; core < count; ++core) {
      link_[core].bind(&cores()->slot[core], &cores()->handshake[core], sequence);
    }
  }
  // Cores are opened one after another, which keeps the number of states small.
  void open(uint32_t core) {
    if (core != 0) Aicpu::store_register(kStart + 4 * core, 1);
    Link& link = link_[core];
    until([&] { return Aicpu::load_register(kStart + 4 * core) != 0; });
    until([&] { return link.has_reported(kLaunch); });
    check(link.physical() == kFirstPhysical + core, "the AICPU reads a wrong physical core");
    check(link.core_type() == PTO_CORE_AIC, "the AICPU reads a wrong core type");
    link.open(kPages + core * kPageBytes, kLaunch);
    until([&] { return link.is_ready(); });
  }
  void dispatch(uint32_t core, const Task& task) { link_[core].dispatch(task.header, sizeof task); }
  void finish(uint32_t core) {
    check(wait(core) == Protocol::State::finished, "a core reports a fault of a right task");
  }
  void expect_fault(uint32_t core, uint64_t value) {
    check(wait(core) == Protocol::State::faulted, "a core runs a kernel without code");
    const pto_a2a3_handshake report = link_[core].report();
    check(report.fault == PTO_A2A3_FAULT_KERNEL, "the AICPU reads a wrong kind of fault");
    check(report.value == value, "the AICPU reads a wrong value of a fault");
  }
  void close(uint32_t core) {
    link_[core].ask_to_leave();
    until([&] { return link_[core].has_left(); });
    link_[core].close();
  }

 private:
  using Link = typename Protocol::template Link<Aicpu>;

  auto wait(uint32_t core) {
    auto state = Protocol::State::running;
    until([&] { return (state = link_[core].poll()) != Protocol::State::running; });
    return state;
  }

  const uint32_t count_;
  Link link_[2];
};

inline void expect(uint64_t* output, uint64_t value) {
  check(Aicpu::load(output) == value, "the AICPU reads a wrong output of a finished task");
}

inline void run_host(uint32_t cores, std::vector<std::pair<uint64_t*, uint64_t>> outputs) {
  const uint64_t input = 5;
  perform(change(Op::write_memory, address_of(data(0)), &input, sizeof input));
  Aicpu::store_register(kStart, 1);
  for (uint32_t agent = 1; agent < kFirstCore + cores; ++agent) {
    Op op = act(Op::join);
    op.line = static_cast<int>(agent);
    perform(op);
  }
  for (const auto& [output, value] : outputs) {
    check(perform(access(Op::read_memory, address_of(output), 8)) == value,
          "the host reads a wrong output after the launch");
  }
}

template <class Protocol>
void run_core() {
  until([] { return Core::load_register(kStart + 4 * Core::block()) != 0; });
  const pto_a2a3_core_launch launch{kBase, kLaunch, 0, 0};
  typename Protocol::template Executor<Core>(launch).run();
}

// A scenario with `cores` cores and `lines` lines of data. COND has the idle value of the launch
// before, and the AICPU sees what the cores write to data without an invalidation.
template <class Protocol>
Scenario launch(uint32_t count, uint32_t lines, std::function<void()> host,
                std::function<void()> scheduler) {
  Scenario scenario;
  uint32_t own[2] = {}, shared = 0, outputs = 0;
  const auto add_line = [&](const void* place) {
    scenario.lines.push_back(address_of(place));
    return 1u << (scenario.lines.size() - 1);
  };
  for (uint32_t line = 0; line < lines; ++line) outputs |= add_line(data(line));
  for (uint32_t core = 0; core < count; ++core) {
    const uint64_t page = kPages + core * kPageBytes;
    const uint32_t idle = pto_a2a3_idle(kLaunch - 1) | PTO_COND_FINISHED;
    const int enabler = static_cast<int>(scenario.registers.size());
    const int number = static_cast<int>(core);
    own[core] = add_line(&cores()->handshake[core]) | add_line(&cores()->slot[core]) |
                add_line(reinterpret_cast<char*>(&cores()->slot[core]) + kLineBytes);
    shared |= own[core];
    scenario.registers.push_back({page + PTO_A2A3_FAST_PATH_ENABLE, number, 0});
    scenario.registers.push_back(
        {page + PTO_A2A3_DATA_MAIN_BASE, number, 0, enabler, PTO_A2A3_FAST_PATH_OPEN});
    scenario.registers.push_back({page + PTO_A2A3_COND, number, idle});
    scenario.registers.push_back({kStart + 4 * core, 2, 0});
  }
  scenario.agents.push_back({"host", std::move(host), outputs, 0});
  scenario.agents.push_back({"AICPU", std::move(scheduler), outputs | shared, outputs});
  for (uint32_t core = 0; core < count; ++core) {
    scenario.agents.push_back(
        {"core " + std::to_string(core), run_core<Protocol>, outputs | own[core], 0});
  }
  call_kernel = add;
  return scenario;
}

// The second task changes the output of the first one in place. Sequence numbers wrap.
template <class Protocol>
Scenario two_tasks_on_a_core() {
  return launch<Protocol>(
      1, 2, [] { run_host(1, {{data(1), 1105}}); },
      [] {
        Scheduler<Protocol> scheduler(1, PTO_SEQUENCE_MAX - 1);
        scheduler.open(0);
        scheduler.dispatch(0, Task(data(1), data(0), 100));
        scheduler.finish(0);
        expect(data(1), 105);
        scheduler.dispatch(0, Task(data(1), data(1), 1000));
        scheduler.finish(0);
        scheduler.close(0);
      });
}

// The address of the first kernel is not that of code. The next task runs.
template <class Protocol>
Scenario a_fault_and_a_task() {
  return launch<Protocol>(
      1, 2, [] { run_host(1, {{data(1), 1005}}); },
      [] {
        Scheduler<Protocol> scheduler(1);
        scheduler.open(0);
        scheduler.dispatch(0, Task(data(1), data(0), 100, 77));
        scheduler.expect_fault(0, 77);
        scheduler.dispatch(0, Task(data(1), data(0), 1000));
        scheduler.finish(0);
        scheduler.close(0);
      });
}

// The AICPU opens no core, and closes the launch. The core ends.
template <class Protocol>
Scenario a_closed_launch() {
  Scenario scenario = launch<Protocol>(
      1, 2, [] { run_host(1, {}); },
      [] {
        Aicpu::store_flag(&cores()->closed, kLaunch);
        Aicpu::clean(&cores()->closed, sizeof cores()->closed);
        Aicpu::order_stores();
      });
  scenario.lines.push_back(address_of(&cores()->closed));
  for (size_t agent : {1, kFirstCore})
    scenario.agents[agent].lines |= 1u << (scenario.lines.size() - 1);
  scenario.is_closed = true;
  return scenario;
}

// Core 1 reads what core 0 has written. Only the lines of data are filled, evicted and loaded early
// spontaneously.
template <class Protocol>
Scenario a_task_after_a_task_of_another_core() {
  Scenario scenario = launch<Protocol>(
      2, 2, [] { run_host(2, {{data(1), 1105}}); },
      [] {
        Scheduler<Protocol> scheduler(2);
        scheduler.open(0);
        scheduler.dispatch(0, Task(data(1), data(0), 100));
        scheduler.finish(0);
        scheduler.close(0);
        scheduler.open(1);
        scheduler.dispatch(1, Task(data(1), data(1), 1000));
        scheduler.finish(1);
        scheduler.close(1);
      });
  scenario.restless = 3;
  return scenario;
}

// Both cores run at a time. The outputs are in line 1, and in line 1 or 2. Only the lines of data
// are filled, evicted and loaded early spontaneously.
template <class Protocol, uint32_t line, uint32_t word>
Scenario two_cores_at_once() {
  Scenario scenario = launch<Protocol>(
      2, line + 1, [] { run_host(2, {{data(1), 105}, {data(line, word), 1005}}); },
      [] {
        Scheduler<Protocol> scheduler(2);
        scheduler.open(0);
        scheduler.open(1);
        scheduler.dispatch(0, Task(data(1), data(0), 100));
        scheduler.dispatch(1, Task(data(line, word), data(0), 1000));
        scheduler.finish(0);
        scheduler.close(0);
        scheduler.finish(1);
        scheduler.close(1);
      });
  scenario.restless = (1u << (line + 1)) - 1;
  return scenario;
}

}  // namespace model
