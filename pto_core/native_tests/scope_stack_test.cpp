#include "pto/engine/scope_stack.hpp"

#include <algorithm>
#include <random>

#include "check.hpp"
#include "heap_memory.hpp"

namespace {

using Stack = pto::engine::ScopeStack<4>;

struct Scopes {
  HeapMemory memory;
  Stack stack;
  int64_t next[4] = {};

  Scopes() {
    CHECK(stack.create(memory.memory()));
    stack.restart();
  }
  ~Scopes() { stack.destroy(); }

  void begin() { CHECK(stack.begin(nullptr, 0)); }
  void submit() { stack.submitted(next[stack.innermost().ring]++); }
  int64_t released(uint32_t ring) const { return stack.released(ring, next[ring]); }
};

TEST(scopes_use_the_ring_of_their_depth) {
  Scopes scopes;
  for (uint32_t depth = 0; depth < 6; ++depth) {
    CHECK(scopes.stack.begin("file", static_cast<int32_t>(depth)));
    CHECK(scopes.stack.depth() == depth);
    CHECK(scopes.stack.innermost().ring == (depth < 3 ? depth : 3));
  }
  CHECK(scopes.stack.at(4).line == 4);
  CHECK(scopes.stack.end() == 3 && scopes.stack.open() == 5);
}

TEST(tasks_of_a_scope_are_released_at_its_end) {
  Scopes scopes;
  scopes.begin();
  scopes.submit();
  scopes.begin();
  scopes.submit();
  scopes.submit();
  CHECK(scopes.released(0) == 0 && scopes.released(1) == 0);
  CHECK(scopes.stack.innermost().tasks == 2);
  scopes.stack.end();
  CHECK(scopes.released(0) == 0 && scopes.released(1) == 2);
  scopes.begin();
  CHECK(scopes.released(1) == 2);
  scopes.submit();
  CHECK(scopes.released(1) == 2);
  scopes.stack.end();
  scopes.stack.end();
  CHECK(scopes.released(0) == 1 && scopes.released(1) == 3);
}

TEST(the_last_ring_waits_for_its_outermost_scope_with_tasks) {
  Scopes scopes;
  for (int depth = 0; depth < 4; ++depth) scopes.begin();
  scopes.begin();   // depth 4; depth 3 has no task yet
  scopes.submit();  // task 0
  scopes.stack.end();
  CHECK(scopes.released(3) == 1);
  scopes.submit();  // task 1 belongs to depth 3
  scopes.begin();
  scopes.submit();  // task 2 belongs to depth 4
  scopes.stack.end();
  CHECK(scopes.released(3) == 1);
  scopes.stack.end();
  CHECK(scopes.released(3) == 3);
}

// Computes the expected values directly from the definition.
TEST(random_nesting_agrees_with_the_definition) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Scopes scopes;
    std::vector<std::vector<int64_t>> own;  // tasks of each open scope, indexed by depth
    int64_t before[4] = {};
    for (int step = 0; step < 300; ++step) {
      const unsigned choice = random() % 4;
      if (own.empty() || choice == 0) {
        scopes.begin();
        own.emplace_back();
      } else if (choice == 1) {
        scopes.stack.end();
        own.pop_back();
      } else {
        own.back().push_back(scopes.next[scopes.stack.innermost().ring]);
        scopes.submit();
      }
      for (uint32_t ring = 0; ring < 4; ++ring) {
        int64_t expected = scopes.next[ring];
        for (uint32_t depth = 0; depth < own.size(); ++depth) {
          if (Stack::ring_at(depth) != ring || own[depth].empty()) continue;
          expected = std::min(expected, own[depth][0]);
        }
        CHECK(scopes.released(ring) == expected);
        CHECK(expected >= before[ring]);
        before[ring] = expected;
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
