// The table of a task's states. For every state and event, the task changes to the state in the
// table, or the event is refused.
#include "states.hpp"

#include <set>
#include <string>
#include <utility>

#include "check.hpp"

namespace {

using namespace pto::ring_buffer;

template <uint32_t... kIndexes>
void move_by(Event event, std::atomic<uint32_t>& phase,
             std::integer_sequence<uint32_t, kIndexes...>) {
  ((event == static_cast<Event>(kIndexes) ? move<static_cast<Event>(kIndexes)>(phase) : void()),
   ...);
}

void move_by(Event event, std::atomic<uint32_t>& phase) {
  move_by(event, phase, std::make_integer_sequence<uint32_t, kEvents>());
}

// Invariant: An event moves a task to the state that the table states.
TEST(an_allowed_event_moves_as_the_table_says) {
  uint32_t allowed = 0;
  for (uint32_t from = 0; from < kPhases; ++from) {
    for (uint32_t index = 0; index < kEvents; ++index) {
      const Event event = static_cast<Event>(index);
      const Transition* found = nullptr;
      for (const Transition& transition : kTransitions) {
        if (transition.from == from && transition.event == event) found = &transition;
      }
      CHECK_EQUAL(may_follow(from, event), found != nullptr);
      if (found == nullptr) continue;
      std::atomic<uint32_t> phase{from};
      move_by(event, phase);
      CHECK_EQUAL(phase.load(), uint32_t{found->to});
      ++allowed;
    }
  }
  CHECK_EQUAL(allowed, uint32_t{sizeof kTransitions / sizeof *kTransitions});
}

TEST(a_number_that_is_no_state_has_no_transition) {
  CHECK(!may_follow(kPhases, Event::kWire));
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
