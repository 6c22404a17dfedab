// Litmus tests of the model, and the protocol of the shipped templates in all its executions.
//
// With MODEL_MUTANTS=FILE the program runs a scenario with a mutant of the templates instead. FILE
// includes the mutants, each in a namespace of its own in pto, and lists them in MUTANTS(apply).
#include <string>

#include "check.hpp"
#include "core/core_link.hpp"
#include "core/executor.hpp"
#include "enumerator.hpp"
#include "protocol.hpp"
#ifdef MODEL_MUTANTS
#include MODEL_MUTANTS
#endif

namespace model {

#define PROTOCOL(name)                            \
  struct name##_protocol {                        \
    template <class Access>                       \
    using Link = pto::name::CoreLink<Access>;     \
    template <class Access>                       \
    using Executor = pto::name::Executor<Access>; \
    using State = pto::name::CoreTaskState;       \
  };

namespace {

Result enumerate(const char* name, const Scenario& scenario) {
  Result result = Enumerator(scenario).run();
  std::printf("  %s: %llu states, %llu steps: %s\n", name,
              static_cast<unsigned long long>(result.states),
              static_cast<unsigned long long>(result.steps),
              result.violation.empty() ? "right" : result.violation.c_str());
  std::fflush(stdout);
  return result;
}

template <class Protocol>
Scenario scenario(const std::string& name) {
  if (name == "two tasks on a core") return two_tasks_on_a_core<Protocol>();
  if (name == "a fault and a task") return a_fault_and_a_task<Protocol>();
  if (name == "a task after a task of another core") {
    return a_task_after_a_task_of_another_core<Protocol>();
  }
  if (name == "a closed launch") return a_closed_launch<Protocol>();
  if (name == "two cores at once") return two_cores_at_once<Protocol, 2, 0>();
  if (name == "two cores in one line") return two_cores_at_once<Protocol, 1, 4>();
  check::fail(__FILE__, __LINE__, "no scenario has this name: " + name);
}

}  // namespace

#ifdef MODEL_MUTANTS

MUTANTS(PROTOCOL)

// Returns 0 if the mutant is caught.
template <class Protocol>
int run(const char* name) {
  return enumerate(name, scenario<Protocol>(name)).violation.empty() ? 1 : 0;
}

#else

namespace {

PROTOCOL(a2a3)

void expect_right(const char* name) {
  const Result result = enumerate(name, scenario<a2a3_protocol>(name));
  for (const std::string& step : result.trace) std::printf("    %s\n", step.c_str());
  CHECK_EQUAL(result.violation, std::string());
}

// Two agents that share two lines and one register; each agent may end with a violation.
Scenario litmus(std::function<void()> first, std::function<void()> second) {
  Scenario scenario;
  scenario.lines = {kData, kData + kLineBytes};
  scenario.registers.push_back({kStart, 0, 0});
  scenario.agents.push_back({"first", std::move(first), 3, 0});
  scenario.agents.push_back({"second", std::move(second), 3, 0});
  return scenario;
}

enum Omit { nothing, clean_of_data, store_order, load_order, invalidation };

// The first agent writes data, and then a register. The second reads the register, and then data,
// which it may have in its cache.
Scenario message_passing(Omit omit) {
  return litmus(
      [omit] {
        Memory::store(data(0), uint64_t{7});
        if (omit != clean_of_data) Memory::clean(data(0), 8);
        if (omit != store_order) Memory::order_stores();
        Memory::store_register(kStart, 1);
      },
      [omit] {
        until([] { return Memory::load_register(kStart) != 0; });
        if (omit != load_order) Memory::order_loads();
        if (omit != invalidation) Memory::invalidate(data(0), 8);
        check(Memory::load(data(0)) == 7, "stale");
      });
}

// The flag is a word in a line of its own, or in the line of the data.
Scenario message_in_memory(uint64_t* flag, Omit omit) {
  return litmus(
      [=] {
        Memory::store(data(0), uint64_t{7});
        Memory::clean(data(0), 8);
        if (omit != store_order) Memory::order_stores();
        Memory::store_flag(flag, uint64_t{1});
        if (omit != clean_of_data) Memory::clean(flag, 8);
      },
      [=] {
        until([flag] {
          Memory::invalidate(flag, 8);
          return Memory::load_flag(flag) != 0;
        });
        if (omit != load_order) Memory::order_loads();
        if (omit != invalidation) Memory::invalidate(data(0), 8);
        check(Memory::load(data(0)) == 7, "stale");
      });
}

// Each agent writes a word in a line of its own, and then reads that of the other.
Scenario store_buffering() {
  const auto write_and_read = [](uint32_t own, uint32_t other) {
    Memory::store(data(own), uint64_t{1});
    Memory::clean(data(own), 8);
    Memory::order_stores();
    Memory::invalidate(data(other), 8);
    return Memory::load(data(other));
  };
  return litmus(
      [=] {
        if (write_and_read(0, 1) != 0) return;
        Op op = act(Op::join);
        op.line = 1;
        perform(op);
        check(Memory::load_register(kStart) == 0, "both read 0");
      },
      [=] {
        if (write_and_read(1, 0) == 0) Memory::store_register(kStart, 1);
      });
}

// Two agents write a word each, in one line or in two, and then a register. The third one reads
// both words.
Scenario writers(uint32_t first, uint32_t second) {
  Scenario scenario;
  scenario.lines = {kData, kData + kLineBytes};
  for (uint32_t i = 0; i < 2; ++i) scenario.registers.push_back({kStart + 4 * i, 0, 0});
  const auto writer = [](uint32_t number, uint64_t* word) {
    return [=] {
      Memory::store(word, uint64_t{7});
      Memory::clean(word, 8);
      Memory::order_stores();
      Memory::store_register(kStart + 4 * number, 1);
    };
  };
  uint64_t *one = data(first, 0), *two = data(second, 4);
  scenario.agents.push_back({"first", writer(0, one), 3, 0});
  scenario.agents.push_back({"second", writer(1, two), 3, 0});
  scenario.agents.push_back({"reader",
                             [=] {
                               for (uint32_t i = 0; i < 2; ++i) {
                                 until([i] { return Memory::load_register(kStart + 4 * i) != 0; });
                               }
                               Memory::order_loads();
                               for (const uint64_t* word : {one, two}) {
                                 Memory::invalidate(word, 8);
                                 check(Memory::load(word) == 7, "lost");
                               }
                             },
                             3, 0});
  return scenario;
}

void expect(const char* name, const Scenario& scenario, const char* violation) {
  CHECK_EQUAL(enumerate(name, scenario).violation, std::string(violation));
}

}  // namespace

TEST(a_message_needs_each_operation_of_both_sides) {
  expect("all operations", message_passing(nothing), "");
  expect("no clean", message_passing(clean_of_data), "stale");
  expect("no order of stores", message_passing(store_order), "stale");
  expect("no order of loads", message_passing(load_order), "stale");
  expect("no invalidation", message_passing(invalidation), "stale");
}

TEST(a_message_in_another_line_needs_each_operation) {
  expect("all operations", message_in_memory(data(1), nothing), "");
  expect("no clean of the flag", message_in_memory(data(1), clean_of_data),
         "the agents wait for ever");
  expect("no order of stores", message_in_memory(data(1), store_order), "stale");
  expect("no order of loads", message_in_memory(data(1), load_order), "stale");
  expect("no invalidation", message_in_memory(data(1), invalidation), "stale");
}

TEST(a_message_in_the_same_line_needs_orders) {
  uint64_t* flag = data(0, 1);
  expect("no second invalidation", message_in_memory(flag, invalidation), "");
  expect("no order of stores", message_in_memory(flag, store_order), "");
  expect("no order of loads", message_in_memory(flag, load_order), "stale");
}

TEST(loads_pass_buffered_stores) {
  expect("store buffering", store_buffering(), "both read 0");
}

TEST(writers_of_one_line_lose_a_word) {
  expect("two lines", writers(0, 1), "");
  expect("one line", writers(0, 0), "lost");
}

TEST(two_tasks_on_a_core_are_right) {
  expect_right("two tasks on a core");
}

TEST(a_task_after_a_fault_is_right) {
  expect_right("a fault and a task");
}

TEST(a_core_of_a_closed_launch_ends) {
  expect_right("a closed launch");
}

TEST(a_task_reads_what_another_core_has_written) {
  expect_right("a task after a task of another core");
}

TEST(tasks_of_two_cores_at_once_are_right) {
  expect_right("two cores at once");
}

TEST(two_cores_with_outputs_in_one_line_lose_an_output) {
  const char* name = "two cores in one line";
  expect(name, scenario<a2a3_protocol>(name), "the host reads a wrong output after the launch");
}

#endif

}  // namespace model

int main(int argc, char** argv) {
#ifdef MODEL_MUTANTS
  if (argc != 3) return 2;
#define RUN_IF_NAMED(name) \
  if (argv[1] == std::string(#name)) return model::run<model::name##_protocol>(argv[2]);
  MUTANTS(RUN_IF_NAMED)
  return 2;
#else
  return check::run_all(argc, argv);
#endif
}
