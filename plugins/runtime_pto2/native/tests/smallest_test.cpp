// Random programs in rings that are too small. The size that the report advises suffices, and the
// next smaller valid size does not.
#include <cstdlib>
#include <random>

#include "check.hpp"
#include "one_thread.hpp"
#include "program.hpp"

namespace {

char external[4096];

// A program that can be repeated: equal seeds produce equal calls.
class RandomProgram {
 public:
  RandomProgram(OneThread& device, uint32_t seed) : program_(device), random_(seed) {}

  void run() {
    scopes_.push_back({});
    const uint32_t calls = 10 + random_() % 120;
    const uint32_t most = 1 + random_() % 5;  // maximum number of open scopes
    for (uint32_t call = 0; call < calls; ++call) {
      const uint32_t kind = random_() % 10;
      if (kind == 0 && scopes_.size() <= most) {
        program_.begin_scope();
        scopes_.push_back({});
      } else if (kind == 1 && scopes_.size() > 1) {
        end_scope();
      } else if (kind == 2) {
        program_.submit_blocks(1 + random_() % 3);
      } else if (kind <= 5) {
        use_external();
      } else {
        submit();
      }
    }
    while (scopes_.size() > 1) end_scope();
  }

 private:
  void end_scope() {
    program_.end_scope();
    scopes_.pop_back();
  }

  void submit() {
    std::vector<uint64_t> outputs;
    for (uint32_t output = random_() % 3; output > 0; --output) {
      outputs.push_back(1 + random_() % (4 * kKiB));
    }
    std::vector<pto_tensor_data> inputs;
    for (uint32_t input = random_() % 6; input > 0; --input) {
      const auto& tensors = scopes_[random_() % scopes_.size()];
      if (!tensors.empty()) inputs.push_back(tensors[random_() % tensors.size()]);
    }
    const Program::Result result = program_.submit(outputs, inputs);
    for (const pto_tensor_data& output : result.outputs) scopes_.back().push_back(output);
  }

  void use_external() {
    const uint64_t base = reinterpret_cast<uint64_t>(external);
    const uint64_t slice = sizeof external / 64;
    if (random_() % 6 == 0) {
      const uint64_t first = random_() % 8;
      program_.submit({}, {Program::tensor_at(base + first * slice, (64 - first) * slice)});
    } else {
      program_.write(Program::tensor_at(base + random_() % 64 * slice, slice));
    }
  }

  Program program_;
  std::mt19937 random_;
  std::vector<std::vector<pto_tensor_data>> scopes_;  // live outputs of each open scope
};

struct Settings {
  uint64_t window, heap, pool, map;

  OneThread::Options options() const {
    return {{"task_window", std::to_string(window)},
            {"heap", std::to_string(heap)},
            {"dep_pool", std::to_string(pool)},
            {"tensor_map_pool", std::to_string(map)}};
  }
};

struct Outcome {
  pto_status status;
  pto_error error;
};

Outcome run(const Settings& settings, uint32_t seed) {
  OneThread device(24, settings.options());
  CHECK_EQUAL(device.status(), PTO_OK);
  const uint32_t hazards = seed % 2 == 0 ? PTO_HAZARDS_RAW : PTO_HAZARDS_FULL;
  const pto_status status = device.run([&] { RandomProgram(device, seed).run(); }, hazards);
  return {status, device.error()};
}

// Read the number after "--set <key>=" in a report, if there is one.
void take(const std::string& message, const std::string& key, uint64_t& value) {
  const std::string text = "--set " + key + "=";
  const size_t found = message.find(text);
  if (found != std::string::npos) value = std::stoull(message.substr(found + text.size()));
}

Settings advised(const Settings& now, const Outcome& outcome) {
  Settings next = now;
  const std::string message = outcome.error.message;
  take(message, "pto2.task_window", next.window);
  take(message, "pto2.heap", next.heap);
  take(message, "pto2.dep_pool", next.pool);
  take(message, "pto2.tensor_map_pool", next.map);
  return next;
}

void check_is_stuck(const Settings& settings, uint32_t seed, const char* what) {
  const Outcome outcome = run(settings, seed);
  if (outcome.status == PTO_ERROR_DEADLOCK || outcome.status == PTO_ERROR_CAPACITY) return;
  check::fail(__FILE__, __LINE__,
              "seed " + std::to_string(seed) + ": a smaller " + what + " was enough (status " +
                  std::to_string(outcome.status) + ", " + outcome.error.message + ")");
}

// The number of programs for which the advice was checked, by resource.
struct Checked {
  uint32_t window = 0, heap = 0, pool = 0, map = 0;
};

void check_seed(uint32_t seed, Checked& checked) {
  std::mt19937 random(seed);
  Settings start{uint64_t{4} << random() % 3, (4 + random() % 40) * kKiB, 16 + random() % 8,
                 16 + random() % 40};
  Settings settings = start;
  Outcome outcome = run(settings, seed);
  // Follow the advice repeatedly: a capacity error names one resource, a deadlock report names all
  // at once.
  for (int round = 0; round < 4 && outcome.status != PTO_OK; ++round) {
    if (outcome.status != PTO_ERROR_DEADLOCK && outcome.status != PTO_ERROR_CAPACITY) {
      check::fail(__FILE__, __LINE__, std::to_string(seed) + ": " + outcome.error.message);
    }
    settings = advised(settings, outcome);
    outcome = run(settings, seed);
  }
  if (outcome.status != PTO_OK) {
    check::fail(__FILE__, __LINE__,
                "seed " + std::to_string(seed) +
                    ": the advised sizes do not suffice: " + outcome.error.message);
  }
  if (settings.window > start.window) {
    Settings smaller = settings;
    smaller.window /= 2;
    check_is_stuck(smaller, seed, "window");
    ++checked.window;
  }
  if (settings.heap != start.heap) {
    Settings smaller = settings;
    smaller.heap -= kKiB;
    check_is_stuck(smaller, seed, "heap");
    ++checked.heap;
  }
  if (settings.pool != start.pool) {
    Settings smaller = settings;
    smaller.pool -= 1;
    check_is_stuck(smaller, seed, "dependency pool");
    ++checked.pool;
  }
  if (settings.map != start.map) {
    Settings smaller = settings;
    smaller.map -= 1;
    check_is_stuck(smaller, seed, "tensor map pool");
    ++checked.map;
  }
}

// Invariant: A deadlock is reported immediately, and only if proven. The reported sizes suffice,
// and the next smaller legal sizes do not.
TEST(the_reported_sizes_suffice_and_the_next_smaller_do_not) {
  const char* first = std::getenv("PTO_SEED");
  const char* programs = std::getenv("PTO_PROGRAMS");
  const uint32_t from = first != nullptr ? static_cast<uint32_t>(std::atoi(first)) : 1;
  const uint32_t count = programs != nullptr ? static_cast<uint32_t>(std::atoi(programs)) : 200;
  std::printf("  seeds %u to %u\n", from, from + count - 1);
  Checked checked;
  for (uint32_t seed = from; seed < from + count; ++seed) check_seed(seed, checked);
  std::printf("  checked: %u windows, %u heaps, %u dependency pools, %u tensor map pools\n",
              checked.window, checked.heap, checked.pool, checked.map);
  if (count < 200) return;
  CHECK(checked.window >= 20 && checked.heap >= 20 && checked.pool >= 10 && checked.map >= 10);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
