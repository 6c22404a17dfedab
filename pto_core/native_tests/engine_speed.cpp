// Measures the cost of a task in the engine of Workers, with one thread and children that complete
// at once.
//
// Prints nanoseconds of processor time for each task: the minimum and the median of several rounds.
// Arguments: the number of tasks in a round, the number of rounds, and words. If words are passed,
// only measurements run whose names contain one of the words.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace {

using namespace pto::worker;
constexpr uint64_t kHeap = uint64_t{1} << 40;
constexpr uint64_t kUser = uint64_t{1} << 33;
constexpr uint32_t kWindow = 256;

Configuration configuration(uint32_t children) {
  Configuration made;
  for (uint32_t child = 0; child < children; ++child) {
    made.children.push_back({Kind::kSub, kWindow});
  }
  for (uint64_t ring = 0; ring < kRings; ++ring) {
    made.rings[ring] = {kHeap + (ring << 32), uint64_t{1} << 30};
  }
  return made;
}

struct Times {
  double submit = 0;
  double dispatch = 0;
  double completion = 0;
  double end = 0;
};

// Return the processor time of this thread, which other processes do not affect.
double nanoseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// Submits all tasks, then dispatches and completes them window by window.
class Round {
 public:
  Round(Engine& engine, uint32_t children) : engine_(engine), done_(children) {}

  Times run(int tasks, Hazards hazards, const std::function<void(int)>& submit) {
    Times times;
    out_.clear();
    engine_.run_begin(hazards, out_);
    const double begin = nanoseconds();
    for (int task = 0; task < tasks; ++task) submit(task);
    const double submitted = nanoseconds();
    times.submit = (submitted - begin) / tasks;
    int left = tasks;
    while (left > 0) {
      out_.clear();
      const double before = nanoseconds();
      engine_.dispatch(out_);
      const double sent = nanoseconds();
      for (const Instruction& each : out_) {
        done_[static_cast<uint32_t>(each.child)] = each.count;
        --left;
      }
      out_.clear();
      const double received = nanoseconds();
      for (uint32_t child = 0; child < done_.size(); ++child) {
        if (done_[child] > told(child)) complete(child);
      }
      const double completed = nanoseconds();
      times.dispatch += (sent - before) / tasks;
      times.completion += (completed - received) / tasks;
    }
    const double closing = nanoseconds();
    engine_.run_end(out_);
    times.end = (nanoseconds() - closing) / tasks;
    return times;
  }

  Instructions& out() { return out_; }

 private:
  uint64_t& told(uint32_t child) {
    if (told_.size() <= child) told_.resize(child + 1);
    return told_[child];
  }

  void complete(uint32_t child) {
    told(child) = done_[child];
    engine_.completion(static_cast<int32_t>(child), done_[child], Outcome::kSucceeded, kNone, out_);
  }

  Engine& engine_;
  Instructions out_;
  std::vector<uint64_t> done_;
  std::vector<uint64_t> told_;
};

void print(const char* name, double Times::* part, std::vector<Times>& all) {
  std::sort(all.begin(), all.end(),
            [&](const Times& one, const Times& other) { return one.*part < other.*part; });
  std::printf(" %s %.0f/%.0f", name, all.front().*part, all[all.size() / 2].*part);
}

std::vector<std::string> wanted;

bool is_wanted(const std::string& name) {
  return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
           return name.find(word) != std::string::npos;
         });
}

using Submitter = std::function<std::function<void(int)>(Engine&, Instructions&)>;

void measure(const char* name, uint32_t children, Hazards hazards, int tasks, int rounds,
             const Submitter& submitter) {
  if (!is_wanted(name)) return;
  Engine engine(configuration(children));
  Round round(engine, children);
  for (uint32_t child = 0; child < children; ++child) {
    engine.child_ready(static_cast<int32_t>(child), round.out());
  }
  std::vector<Times> all;
  for (int at = 0; at <= rounds; ++at) {
    const Times times = round.run(tasks, hazards, submitter(engine, round.out()));
    if (at > 0) all.push_back(times);
  }
  std::printf("%-34s", name);
  print("submit", &Times::submit, all);
  print("dispatch", &Times::dispatch, all);
  print("completion", &Times::completion, all);
  print("end of run", &Times::end, all);
  std::printf("\n");
}

// Return a function that submits tasks with these tensors. `move` sets the addresses of the tensors
// for each task.
Submitter with_tensors(std::vector<TensorAccess> tensors,
                       std::function<void(TensorAccess*, int)> move) {
  return [=](Engine& engine, Instructions& out) {
    return [&engine, &out, tensors, move](int task) mutable {
      if (!tensors.empty()) move(tensors.data(), task);
      const Member member{tensors};
      Submission submission;
      submission.kind = Kind::kSub;
      submission.members = {&member, 1};
      engine.submit(submission, out);
    };
  };
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

void measure_memory(const char* name, const Submitter& submitter) {
  constexpr int kTasks = 1'000'000;
  if (!is_wanted(name)) return;
  Engine engine(configuration(1));
  Instructions out;
  engine.run_begin(Hazards::kRaw, out);
  const size_t before = resident_bytes();
  const auto submit = submitter(engine, out);
  for (int task = 0; task < kTasks; ++task) submit(task);
  std::printf("%-34s %.0f bytes for each waiting task\n", name,
              static_cast<double>(resident_bytes() - before) / kTasks);
}

}  // namespace

int main(int argc, char** argv) {
  const int tasks = argc > 1 ? std::atoi(argv[1]) : 10'000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 30;
  for (int at = 3; at < argc; ++at) wanted.push_back(argv[at]);
  const auto own = [](TensorAccess* tensor, int task) {
    tensor->address = kUser + static_cast<uint64_t>(task) * 4096;
  };
  const auto four_own = [](TensorAccess* tensors, int task) {
    for (uint64_t at = 0; at < 4; ++at) {
      tensors[at].address = kUser + (static_cast<uint64_t>(task) * 4 + at) * 4096;
    }
  };
  const auto allocated = [](TensorAccess* tensor, int) { tensor->address = 0; };
  const auto same = [](TensorAccess*, int) {};
  const TensorAccess input{kUser, 4096, nullptr, Tag::kInput};
  const TensorAccess output{kUser, 4096, nullptr, Tag::kOutput};
  const TensorAccess inout{kUser, 4096, nullptr, Tag::kInout};
  const Hazards raw = Hazards::kRaw;
  std::printf(
      "nanoseconds of processor time for each task, minimum/median of %d rounds of %d tasks\n",
      rounds, tasks);
  measure("nothing", 1, raw, tasks, rounds, with_tensors({}, same));
  measure("nothing, 4 children", 4, raw, tasks, rounds, with_tensors({}, same));
  measure("one input of its own", 1, raw, tasks, rounds, with_tensors({input}, own));
  measure("one output of its own", 1, raw, tasks, rounds, with_tensors({output}, own));
  measure("one output of its own, full", 1, Hazards::kFull, tasks, rounds,
          with_tensors({output}, own));
  measure("one output, allocated", 1, raw, tasks, rounds, with_tensors({output}, allocated));
  measure("four inouts of its own", 1, raw, tasks, rounds,
          with_tensors({inout, inout, inout, inout}, four_own));
  measure("chain", 1, raw, tasks, rounds, with_tensors({inout}, same));
  if (rounds < 2) return 0;
  measure_memory("memory of nothing", with_tensors({}, same));
  measure_memory("memory of an output", with_tensors({output}, own));
  return 0;
}
