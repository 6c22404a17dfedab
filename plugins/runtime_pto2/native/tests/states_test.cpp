// The table of a task's states: every pair of state and event changes the state as the table
// states, or is refused.
#include "states.hpp"

#include <set>
#include <string>

#include "check.hpp"

namespace {

using namespace pto::ring_buffer;

// Invariant: A task's state changes as the table states, or the event changes nothing.
TEST(every_pair_moves_as_the_table_says_or_changes_nothing) {
  uint32_t allowed = 0;
  for (uint32_t from = 0; from < kPhases; ++from) {
    for (uint32_t index = 0; index < kEvents; ++index) {
      const Event event = static_cast<Event>(index);
      const Transition* found = nullptr;
      for (const Transition& transition : kTransitions) {
        if (transition.from == from && transition.event == event) found = &transition;
      }
      std::atomic<uint32_t> phase{from};
      CHECK_EQUAL(try_move(phase, event), found != nullptr);
      CHECK_EQUAL(may_follow(from, event), found != nullptr);
      CHECK_EQUAL(phase.load(), found != nullptr ? uint32_t{found->to} : from);
      allowed += found != nullptr;
    }
  }
  CHECK_EQUAL(allowed, uint32_t{sizeof kTransitions / sizeof *kTransitions});
}

TEST(a_word_that_is_no_state_is_refused) {
  std::atomic<uint32_t> phase{kPhases};
  CHECK(!try_move(phase, Event::kWire));
  CHECK_EQUAL(phase.load(), kPhases);
}

TEST(an_event_leads_to_one_state) {
  for (const Transition& transition : kTransitions) {
    CHECK_EQUAL(uint32_t{transition.to}, uint32_t{target(transition.event)});
  }
}

TEST(every_state_and_event_is_used_and_has_a_name_of_its_own) {
  std::set<uint32_t> states;
  std::set<Event> events;
  for (const Transition& transition : kTransitions) {
    states.insert({transition.from, transition.to});
    events.insert(transition.event);
  }
  CHECK_EQUAL(states.size(), size_t{kPhases});
  CHECK_EQUAL(events.size(), size_t{kEvents});
  std::set<std::string> names;
  for (const StateText& text : kStateTexts) names.insert(text.name);
  for (const StateText& text : kEventTexts) names.insert(text.name);
  CHECK_EQUAL(names.size(), size_t{kPhases + kEvents});
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
