#include "life/in_flight.hpp"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace pto::a2a3 {

namespace {

constexpr uint32_t kMostNamed = 8;

// The AICPU writes back every 10 ms at most which tasks have finished.
constexpr std::chrono::milliseconds kSettleTime{20};

std::string describe(const pto_payload& task, uint32_t core) {
  return "kernel " + std::to_string(task.func_id) + " of task " + std::to_string(task.task) +
         " on core " + std::to_string(core);
}

}  // namespace

void add_in_flight(const pto_a2a3_progress& progress, const pto_a2a3_cores& cores,
                   pto_error& failure) {
  uint32_t count = 0, last = 0;
  std::string named;
  for (uint32_t core = 0; core < PTO_MAX_CORES; ++core) {
    if (pto_a2a3_in_flight(&progress, &cores, core) == 0) continue;
    last = core;
    if (++count > kMostNamed) continue;
    named += (count > 1 ? ", " : "") + describe(cores.slot[core].payload, core);
  }
  if (count > kMostNamed) named += " and " + std::to_string(count - kMostNamed) + " more";
  if (count == 0) named = "no task";
  const std::string message = "In flight: " + named + ". " + failure.message;
  std::snprintf(failure.message, sizeof failure.message, "%s", message.c_str());
  const bool is_of_kernel =
      failure.status == PTO_ERROR_KERNEL || failure.status == PTO_ERROR_TIMEOUT;
  if (count != 1 || !is_of_kernel) return;
  const pto_payload& task = cores.slot[last].payload;
  failure.func_id = task.func_id;
  failure.task = static_cast<int64_t>(task.task);
  failure.core = static_cast<int32_t>(last);
}

void name_in_flight(Session& session, uint64_t progress, uint64_t cores, pto_error& failure) {
  const auto states = std::make_unique<pto_a2a3_progress>();
  const auto slots = std::make_unique<pto_a2a3_cores>();
  std::this_thread::sleep_for(kSettleTime);
  const auto lock = session.lock();
  if (!session.salvage(states.get(), progress, sizeof *states)) return;
  if (!session.salvage(slots.get(), cores, sizeof *slots)) return;
  add_in_flight(*states, *slots, failure);
}

}  // namespace pto::a2a3
