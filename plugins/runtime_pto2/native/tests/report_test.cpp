// The text of a deadlock report. The tests invent the proofs.
#include "report.hpp"

#include <string>

#include "check.hpp"

namespace {

using namespace pto::ring_buffer;

Proof full_window(uint32_t ring) {
  Proof proof;
  proof.blocked = {Resource::kWindow, ring, 5, 1, 2, 12, "/project/graph.cpp", 0};
  for (uint64_t& window : proof.sizes.options.task_window) window = 4;
  proof.sizes.blocks = 24;
  proof.used = 3;
  proof.current = 7;
  proof.last_alive = 4;
  proof.holder = TaskId{ring, 4}.value();
  proof.holder_place = {"/project/graph.cpp", 9};
  proof.scope_depth = 4;
  proof.scope_place = {"/project/graph.cpp", 8};
  return proof;
}

template <class Write>
std::string written(Write write) {
  char text[1024];
  pto::engine::Text out(text, sizeof text);
  write(out);
  return text;
}

std::string plan_text(const Proof& proof, const Plan& plan) {
  return written([&](pto::engine::Text& text) { add_plan(text, proof, plan); });
}

TEST(a_full_window_is_told_with_all_numbers) {
  const std::string text =
      written([](pto::engine::Text& out) { add_exhausted(out, full_window(3)); });
  CHECK_EQUAL(text,
              "the task ring of ring 3 (scopes of depth 3 and deeper) is full: current=7, "
              "last_alive=4, active=3/3, window 4; 1 slot wanted at graph.cpp:12");
}

TEST(the_chain_leads_back_to_the_orchestrator) {
  const std::string text = written([](pto::engine::Text& out) { add_chain(out, full_window(3)); });
  CHECK_EQUAL(
      text,
      "orchestrator -> free space -> task 4 of ring 3 from graph.cpp:9, done but not retired -> "
      "the end of the scope of depth 4 opened at graph.cpp:8 -> orchestrator");
}

TEST(places_that_nobody_knows_are_unknown) {
  Proof proof = full_window(0);
  proof.blocked.file = nullptr;
  proof.scope_depth = 0;
  CHECK_CONTAINS(written([&](pto::engine::Text& out) { add_exhausted(out, proof); }),
                 "an unknown line");
  CHECK_CONTAINS(written([&](pto::engine::Text& out) { add_chain(out, proof); }),
                 "the end of the run itself (scope depth 0)");
}

TEST(sizes_that_differ_are_told_ring_by_ring) {
  Proof proof = full_window(1);
  proof.sizes.options.task_window[0] = 8;
  Plan plan{};
  plan.sizes = proof.sizes;
  plan.sizes.options.task_window[1] = 16;
  plan.is_short[static_cast<uint32_t>(Resource::kWindow)][1] = true;
  CHECK_EQUAL(plan_text(proof, plan),
              "Smallest that suffices: task window 8,16,4,4 slots (8,4,4,4 is too small for ring "
              "1): --set pto2.task_window=8,16,4,4, environment PTO2_RING_TASK_WINDOW=8,16,4,4. "
              "Or end scopes earlier, so that less is alive at once.");
}

TEST(a_lower_bound_says_so) {
  const Proof proof = full_window(1);
  Plan plan{};
  plan.sizes = proof.sizes;
  plan.is_short[static_cast<uint32_t>(Resource::kWindow)][1] = true;
  plan.is_lower_bound = true;
  CHECK_CONTAINS(plan_text(proof, plan), "at least");
}

TEST(without_a_plan_the_setting_is_still_named) {
  const Proof proof = full_window(1);
  Plan plan{};
  plan.sizes = proof.sizes;
  CHECK_CONTAINS(plan_text(proof, plan), "pto2.task_window");
}

TEST(a_long_wait_is_logged_in_the_published_form) {
  const std::string text = written(
      [](pto::engine::Text& out) { add_blocked(out, full_window(2), uint64_t{1'500'000'000}); });
  CHECK_CONTAINS(text, "[TaskRing] BLOCKED (Flow Control): ");
  CHECK_CONTAINS(text, "current=7, last_alive=4, active=3/3 (100.0%)");
  CHECK_CONTAINS(text, "waited 1500 ms at graph.cpp:12");
}

// Long file names must not displace the advice from the message.
TEST(the_advice_survives_long_names) {
  const std::string name = "/" + std::string(250, 'x') + ".cpp";
  Proof proof = full_window(3);
  proof.blocked.file = proof.holder_place.file = proof.scope_place.file = name.c_str();
  Plan plan{};
  plan.sizes = proof.sizes;
  for (uint32_t resource = 1; resource < kResources; ++resource) {
    for (bool& is_short : plan.is_short[resource]) is_short = true;
  }
  const std::string text = written([&](pto::engine::Text& out) {
    out.add("deadlock: ");
    add_exhausted(out, proof);
    out.add(". No task runs and none can start: ");
    add_chain(out, proof);
    out.add(". ");
    add_plan(out, proof, plan);
  });
  CHECK_CONTAINS(text, "--set pto2.task_window=");
  CHECK_CONTAINS(text, "--set pto2.heap=");
  CHECK_CONTAINS(text, "--set pto2.dep_pool=");
}

}  // namespace
