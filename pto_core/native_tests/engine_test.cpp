// Tests the engine of Workers in long runs: no task is lost, the invariants hold, and
// no slot stays alive. Other tests compare its decisions with the reference engine. This test also
// runs with sanitizers.
#include <cstdlib>
#include <deque>
#include <new>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "engine/engine.hpp"
#include "engine/slots.hpp"

namespace {

uint64_t allocations = 0;

}  // namespace

// Counts allocations, to check that a warm engine allocates no memory. Not inlined, because the
// compiler would otherwise warn about memory of malloc that is passed to delete.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace {

using namespace pto::worker;

constexpr uint64_t kHeap = uint64_t{1} << 40;
constexpr uint64_t kUser = uint64_t{1} << 33;
constexpr int kTasks = check::kIsSanitized ? 30'000 : 100'000;
constexpr int64_t kManyTasks = check::kIsSanitized ? 100'000 : 1'000'000;

Configuration configuration(uint32_t children, uint32_t window, uint64_t ring_bytes) {
  Configuration made;
  for (uint32_t child = 0; child < children; ++child) {
    made.children.push_back({child % 4 == 3 ? Kind::kNextLevel : Kind::kSub, window});
  }
  for (uint64_t ring = 0; ring < kRings; ++ring) {
    made.rings[ring] = {kHeap + (ring << 32), ring_bytes};
  }
  made.repeats_lost = true;
  return made;
}

struct Frame {
  int32_t required_child;
  uint64_t required_count;
};

// A child that runs its frames in order, checks their requirements, and reports late and in
// batches.
struct Child {
  std::deque<Frame> queue;
  std::vector<Outcome> outcomes;  // outcomes of all frames that it has completed
  uint64_t reported = 0;
  bool is_alive = false;
};

// A driver with children, which submits a given number of random tasks.
class World {
 public:
  World(uint64_t seed, uint32_t children, uint32_t window, uint64_t ring_bytes)
      : random_(seed), engine_(configuration(children, window, ring_bytes)), children_(children) {}

  void run(int tasks, Hazards hazards, double chance_of_loss) {
    loss_ = chance_of_loss;
    engine_.run_begin(hazards, out_);
    buffers_.assign(1, {});
    for (int task = 0; task < tasks; ++task) {
      while (chance(0.6)) advance();
      if (chance(0.05)) begin_scope();
      if (chance(0.05)) end_scope();
      submit();
    }
    while (buffers_.size() > 1) end_scope();
    engine_.run_end(out_);
    buffers_.clear();
    while (!has_ended_) {
      follow();
      advance();
    }
    has_ended_ = false;
    check_end(tasks);
  }

  uint64_t sent_early() const { return sent_early_; }

 private:
  struct Buffer {
    uint64_t address;
    uint64_t bytes;
  };

  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }

  void check_end(int tasks) {
    CHECK_EQUAL(finished_.size(), static_cast<size_t>(submitted_));
    CHECK_EQUAL(run_tasks_, tasks);
    engine_.validate();
    CHECK(engine_.snapshot().tasks.empty());
    CHECK(saved_.empty());
    finished_.clear();
    submitted_ = 0;
  }

  void begin_scope() {
    if (buffers_.size() > 6) return;
    engine_.scope_begin();
    buffers_.push_back({});
  }

  void end_scope() {
    if (buffers_.size() == 1) return;
    engine_.scope_end(out_);
    buffers_.pop_back();
    follow();
  }

  TensorAccess tensor() {
    if (chance(0.15)) return {0, 1 + below(3000), nullptr, Tag::kOutput};
    if (chance(0.1)) return {kUser + below(8), 0, nullptr, Tag::kInout};
    const std::vector<Buffer>& buffers = buffers_[below(buffers_.size())];
    const auto tag = static_cast<Tag>(below(5));
    if (!buffers.empty() && chance(0.5)) {
      const Buffer& buffer = buffers[below(buffers.size())];
      return {buffer.address, buffer.bytes, nullptr, tag};
    }
    const uint64_t at = below(64);
    if (chance(0.3)) {
      boxes_.push_back({kUser, 1, 2, {16, 64}, {at % 16, 0}, {1, 1 + at}});
      return {kUser + at % 16, 1 + at, &boxes_.back(), tag};
    }
    return {kUser + at * 16, 16 + 16 * below(4), nullptr, tag};
  }

  void submit() {
    const Kind kind = children_.size() > 3 && chance(0.2) ? Kind::kNextLevel : Kind::kSub;
    const uint64_t most = kind == Kind::kSub && chance(0.1) ? 2 : 1;
    std::vector<std::vector<TensorAccess>> tensors(most);
    std::vector<Member> members;
    boxes_.clear();
    for (auto& each : tensors) {
      for (uint64_t count = below(3); count > 0; --count) each.push_back(tensor());
    }
    for (auto& each : tensors) members.push_back({each});
    const int32_t pin = kind == Kind::kSub ? 0 : 3;
    const int32_t pins[] = {pin, 1};
    Submission submission;
    submission.kind = kind;
    submission.members = members;
    submission.retries = chance(0.2) ? 2 : 0;
    if (chance(0.3)) submission.pins = {pins, most};
    submission.is_hint = chance(0.5);
    while (true) {
      const Submitted submitted = engine_.submit(submission, out_);
      follow();
      if (submitted.task != kNone) break;
      Deadlock proof;
      if (engine_.deadlock(&proof)) end_all_scopes();
      advance();
    }
    ++submitted_;
    for (const auto& each : tensors) {
      for (const TensorAccess& made : each) {
        if (made.address >= kHeap && made.address < kHeap << 1 && made.tag == Tag::kOutput) {
          buffers_.back().push_back({made.address, made.bytes});
        }
      }
    }
    if (buffers_.back().size() > 8) buffers_.back().clear();
  }

  // End all scopes. If open scopes hold a full ring, this is the only way to continue.
  void end_all_scopes() {
    while (buffers_.size() > 1) end_scope();
    begin_scope();
  }

  void advance() {
    engine_.dispatch(out_);
    follow();
    const auto number = static_cast<int32_t>(below(children_.size()));
    Child& child = children_[static_cast<uint32_t>(number)];
    if (!child.is_alive) {
      engine_.child_ready(number, out_);
      child.is_alive = true;
    } else if (chance(loss_)) {
      lose(number, child);
    } else {
      while (!child.queue.empty() && chance(0.8) && step(child)) {
      }
      if (child.reported < child.outcomes.size()) report(number, child);
    }
    follow();
  }

  // Run the oldest frame. Return false if the frame waits for its requirement.
  bool step(Child& child) {
    const Frame frame = child.queue.front();
    Outcome outcome = chance(0.02) ? Outcome::kFailed : Outcome::kSucceeded;
    if (frame.required_child != kNone) {
      const auto& required = children_[static_cast<uint32_t>(frame.required_child)].outcomes;
      if (required.size() < frame.required_count) return false;
      if (required[frame.required_count - 1] != Outcome::kSucceeded) outcome = Outcome::kSkipped;
    }
    child.queue.pop_front();
    child.outcomes.push_back(outcome);
    return true;
  }

  void report(int32_t number, Child& child) {
    uint64_t count = child.reported + 1;
    while (count < child.outcomes.size() && child.outcomes[count - 1] == Outcome::kSucceeded) {
      ++count;
    }
    child.reported = count;
    engine_.completion(number, count, child.outcomes[count - 1], 7, out_);
  }

  void lose(int32_t number, Child& child) {
    while (child.reported < child.outcomes.size()) report(number, child);
    const bool may_have_begun = !child.queue.empty() && child.queue.front().required_child == kNone;
    const uint64_t started = child.reported + (may_have_begun && chance(0.5));
    child.outcomes.resize(child.outcomes.size() + child.queue.size(), Outcome::kFailed);
    child.reported = child.outcomes.size();
    child.queue.clear();
    child.is_alive = false;
    engine_.child_lost(number, 8, started, true, out_);
  }

  void follow() {
    for (const Instruction& each : out_) {
      if (each.what == Instruction::What::kSend) {
        Child& child = children_[static_cast<uint32_t>(each.child)];
        CHECK(child.is_alive);
        CHECK_EQUAL(each.count, child.outcomes.size() + child.queue.size() + 1);
        child.queue.push_back({each.required_child, each.required_count});
        sent_early_ += each.required_child != kNone;
      } else if (each.what == Instruction::What::kTaskFinished) {
        CHECK(finished_.insert(each.task).second);
      } else if (each.what == Instruction::What::kRunFinished) {
        has_ended_ = true;
        run_tasks_ = static_cast<int>(each.task);
      } else if (each.what == Instruction::What::kSaveRegions) {
        CHECK(saved_.insert(each.task).second);
      } else if (each.what == Instruction::What::kDropRegions) {
        CHECK_EQUAL(saved_.erase(each.task), size_t{1});
      }
    }
    out_.clear();
    if (++events_ % 5000 == 0) engine_.validate();
  }

  std::mt19937_64 random_;
  Engine engine_;
  std::vector<Child> children_;
  std::vector<std::vector<Buffer>> buffers_;  // buffers of the open scopes
  std::deque<Box> boxes_;
  std::set<int64_t> finished_;
  std::set<int64_t> saved_;
  Instructions out_;
  double loss_ = 0;
  uint64_t submitted_ = 0;
  uint64_t events_ = 0;
  uint64_t sent_early_ = 0;
  int run_tasks_ = 0;
  bool has_ended_ = false;
};

TEST(a_long_run) {
  World world(1, 4, 64, uint64_t{1} << 22);
  world.run(kTasks, Hazards::kRaw, 0);
  CHECK(world.sent_early() > 100);
}

TEST(a_long_run_under_full_hazards_with_lost_children) {
  World world(2, 4, 16, uint64_t{1} << 22);
  world.run(kTasks, Hazards::kFull, 0.003);
}

TEST(many_short_runs_reuse_the_memory_of_earlier_runs) {
  World world(3, 5, 7, uint64_t{1} << 20);
  for (int run = 0; run < 300; ++run) {
    world.run(60, run % 3 == 0 ? Hazards::kRaw : Hazards::kFull, run % 5 == 0 ? 0.01 : 0);
  }
}

TEST(a_million_tasks_may_wait) {
  Engine engine(configuration(1, 8, 1024));
  Instructions out;
  engine.run_begin(Hazards::kRaw, out);
  const Member nothing;
  Submission submission;
  submission.kind = Kind::kSub;
  submission.members = {&nothing, 1};
  for (int64_t task = 0; task < kManyTasks; ++task) {
    CHECK_EQUAL(engine.submit(submission, out).task, task);
  }
  engine.cancel(5, out);
  CHECK_EQUAL(engine.poisonings().size(), size_t{kManyTasks});
  out.clear();
  engine.run_end(out);
  CHECK(out.back().what == Instruction::What::kRunFinished);
}

// An engine with two children that complete every frame at once.
class Prompt {
 public:
  explicit Prompt(Engine& engine) : engine_(engine) {
    out_.reserve(1 << 16);
    for (int32_t child = 0; child < 2; ++child) engine_.child_ready(child, out_);
  }

  // Run tasks with a shared tensor and an allocated tensor, each in a scope of its own. Some tasks
  // are groups.
  void run() {
    engine_.run_begin(Hazards::kFull, out_);
    for (int task = 0; task < 5'000; ++task) {
      if (task % 100 == 0) engine_.scope_begin();
      TensorAccess tensors[] = {{kUser, 64, nullptr, Tag::kInout}, {0, 64, nullptr, Tag::kOutput}};
      const Member members[] = {{tensors}, {{}}};
      Submission submission;
      submission.kind = Kind::kSub;
      submission.members = {members, task % 7 == 0 ? 2u : 1u};
      CHECK(engine_.submit(submission, out_).task != kNone);
      if (task % 100 == 99) engine_.scope_end(out_);
      if (task % 10 == 9) advance();
    }
    engine_.run_end(out_);
    while (out_.empty() || out_.back().what != Instruction::What::kRunFinished) advance();
  }

 private:
  void advance() {
    out_.clear();
    engine_.dispatch(out_);
    uint64_t sent[2] = {completed_[0], completed_[1]};
    for (const Instruction& each : out_) {
      if (each.what == Instruction::What::kSend) sent[each.child] = each.count;
    }
    // Complete all frames of a child in one report. A frame that one of them requires is in the
    // same batch.
    for (int32_t child = 0; child < 2; ++child) {
      if (sent[child] == completed_[child]) continue;
      completed_[child] = sent[child];
      engine_.completion(child, sent[child], Outcome::kSucceeded, kNone, out_);
    }
  }

  Engine& engine_;
  Instructions out_;
  uint64_t completed_[2] = {};
};

// Invariant: An engine that has reached its working size allocates no memory.
TEST(a_warm_engine_allocates_nothing) {
  Engine engine(configuration(2, 64, uint64_t{1} << 24));
  Prompt driver(engine);
  for (int run = 0; run < 3; ++run) driver.run();
  const uint64_t before = allocations;
  driver.run();
  CHECK_EQUAL(allocations, before);
}

TEST(every_event_follows_the_transition_table_or_changes_nothing) {
  for (uint8_t state = 0; state < kStates; ++state) {
    for (uint8_t event = 0; event < kStateEvents; ++event) {
      Slots slots;
      slots.restart();
      slots.reserve();
      Slot& slot = slots[slots.take()];
      slot.state = static_cast<TaskState>(state);
      const uint8_t next = kTransitions.next[state][event];
      std::string refusal;
      try {
        slots.move(slot, static_cast<TaskEvent>(event));
      } catch (const Refusal& error) {
        refusal = error.what();
      }
      CHECK_EQUAL(refusal.empty(), next != kNotAState);
      CHECK_EQUAL(static_cast<int>(slot.state), next == kNotAState ? state : next);
      if (next == kNotAState) CHECK_CONTAINS(refusal, "cannot happen to a task that is");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
