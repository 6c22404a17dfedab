// Exhausted memory at each step of the creation of an instance and of a run. The error names the
// missing memory, nothing leaks (OneThread checks this), and the instance works again when memory
// is available.
#include <set>
#include <string>

#include "program.hpp"

namespace {

const OneThread::Options kSmall = {
    {"task_window", "16"}, {"heap", "65536"}, {"dep_pool", "64"}, {"tensor_map_pool", "64"}};

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t begin = text.find(before);
  CHECK(begin != std::string::npos);
  const size_t end = text.find(after, begin);
  CHECK(end != std::string::npos);
  return text.substr(begin + before.size(), end - begin - before.size());
}

// Return the smallest number of reservations with which an instance can be created. Calls `refused`
// with the error for each smaller number.
template <class Refused>
uint64_t first_success(Refused refused) {
  for (uint64_t granted = 0;; ++granted) {
    OneThread device(2, kSmall, granted);
    if (device.status() == PTO_OK) return granted;
    CHECK_EQUAL(device.status(), PTO_ERROR_MEMORY);
    CHECK_EQUAL(device.reserved_bytes(), size_t{0});
    refused(std::string(device.error().message));
  }
}

TEST(a_failed_create_names_the_missing_memory) {
  std::set<std::string> named;
  std::set<std::string> advice;
  first_success([&](const std::string& message) {
    if (message.find("bytes to start") != std::string::npos) {
      named.insert("itself");
      return;
    }
    named.insert(
        between(message, "no memory for ", " of tensormap_and_ringbuffer, which has reserved "));
    advice.insert(message.substr(message.rfind("; ") + 2));
  });
  CHECK(named ==
        (std::set<std::string>{"a task's edges", "itself", "the dependency pools",
                               "the history of the heap rings", "the payloads of tasks",
                               "the schedulers", "the scopes", "the stream of tasks",
                               "the table of kernels", "the task rings", "the tensor map"}));
  CHECK(advice ==
        (std::set<std::string>{"free memory of the host", "reduce pto2.dep_pool",
                               "reduce pto2.task_window", "reduce pto2.tensor_map_pool"}));
}

// Submit tasks with payloads of several sizes, in many open scopes, with outputs in all heap rings.
void submit_much(Program& program) {
  for (uint32_t depth = 0; depth < 40; ++depth) program.begin_scope();
  std::vector<pto_tensor_data> made = program.submit({100, 2000}).outputs;
  program.submit({50}, {made[0], made[1], made[0], made[1]});
  for (uint32_t depth = 0; depth < 40; ++depth) program.end_scope();
  program.scope([&] { program.submit_blocks(3); });
  program.submit({10});
}

TEST(a_run_without_memory_ends_with_an_error_and_the_next_one_works) {
  const uint64_t needed = first_success([](const std::string&) {});
  std::set<std::string> errors;
  for (uint64_t granted = 0;; ++granted) {
    OneThread device(2, kSmall, needed);
    CHECK_EQUAL(device.status(), PTO_OK);
    device.grant(granted);
    Program program(device);
    const pto_status status = device.run([&] { submit_much(program); });
    if (status == PTO_OK) break;
    CHECK_EQUAL(status, PTO_ERROR_MEMORY);
    CHECK_CONTAINS(std::string(device.error().message), "no memory for ");
    errors.insert(device.error().message);
    device.grant(OneThread::kAll);
    CHECK_EQUAL(device.run([&] { submit_much(program); }), PTO_OK);
  }
  CHECK(!errors.empty());
}

// A plan needs memory. If memory is exhausted, the proof is still reported, with the facts that are
// known.
TEST(a_deadlock_is_proven_without_memory_for_the_plan) {
  bool is_planned = false;
  for (uint64_t granted = 0; !is_planned; ++granted) {
    OneThread device(2, kSmall);
    Program program(device);
    CHECK_EQUAL(device.run([&] { submit_much(program); }), PTO_OK);
    const pto_status status = device.run([&] {
      for (uint32_t task = 0; task < 15; ++task) program.submit();
      device.grant(granted);
      for (uint32_t task = 0; task < 5; ++task) program.submit();
    });
    CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
    CHECK_CONTAINS(std::string(device.error().message), "the task ring of ring 0");
    CHECK_CONTAINS(std::string(device.error().message), "pto2.task_window");
    is_planned = std::strstr(device.error().message, "Smallest that suffices") != nullptr;
    device.grant(OneThread::kAll);
    CHECK_EQUAL(device.run([&] { submit_much(program); }), PTO_OK);
  }
}

}  // namespace
