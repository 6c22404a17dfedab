// Prints docs/states.md from the tables of states.hpp.
#include <cstdio>

#include "states.hpp"

namespace {

using namespace pto::ring_buffer;

void print_texts(const char* what, const StateText* texts, uint32_t count) {
  std::printf("| %s | meaning |\n| --- | --- |\n", what);
  for (uint32_t i = 0; i < count; ++i) {
    std::printf("| `%s` | %s |\n", texts[i].name, texts[i].meaning);
  }
  std::printf("\n");
}

void print_table() {
  std::printf("| state |");
  for (const StateText& event : kEventTexts) std::printf(" `%s` |", event.name);
  std::printf("\n| --- |");
  for (uint32_t i = 0; i < kEvents; ++i) std::printf(" --- |");
  std::printf("\n");
  for (uint32_t phase = 0; phase < kPhases; ++phase) {
    std::printf("| `%s` |", kStateTexts[phase].name);
    for (uint32_t event = 0; event < kEvents; ++event) {
      const bool is_allowed = may_follow(phase, static_cast<Event>(event));
      const uint32_t to = target(static_cast<Event>(event));
      std::printf(is_allowed ? " `%s` |" : " |", is_allowed ? kStateTexts[to].name : "");
    }
    std::printf("\n");
  }
}

void print_diagram() {
  std::printf("```mermaid\nstateDiagram-v2\n");
  for (const Transition& transition : kTransitions) {
    std::printf("  %s --> %s: %s\n", kStateTexts[transition.from].name,
                kStateTexts[transition.to].name,
                kEventTexts[static_cast<uint32_t>(transition.event)].name);
  }
  std::printf("```\n");
}

}  // namespace

int main() {
  std::printf(
      "# States of a task\n\n"
      "Generated from `plugins/runtime_pto2/native/src/states.hpp`; a test compares this page with "
      "the\ntables. Regenerate it with the program `states_page` of the native tests.\n\n"
      "## Level 2: `tensormap_and_ringbuffer`\n\n"
      "The next state for each state and event. An event without an entry is not possible in that "
      "state.\n\n");
  print_table();
  std::printf("\n");
  print_diagram();
  std::printf("\n");
  print_texts("state", kStateTexts, kPhases);
  print_texts("event", kEventTexts, kEvents);
  std::printf(
      "The published design numbers four of them: 0 is `FREE` or `PENDING`, 1 `READY`, 2 "
      "`COMPLETED`,\n3 `CONSUMED`; `DONE` is between the last two, and `FAILED` is ours. A block "
      "task is one task here: its\nfirst block is `COMPLETED` until all blocks have returned.\n");
  return 0;
}
