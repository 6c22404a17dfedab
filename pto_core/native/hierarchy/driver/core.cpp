#include "driver/core.hpp"

#include <algorithm>
#include <utility>

namespace pto::hierarchy {

DriverCore::DriverCore(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
                       SharedFlags& flags)
    : configuration(configuration),
      flags(flags),
      engine(std::move(engine)),
      progress(configuration.progress),
      tracer(progress),
      regions(configuration.snapshot_limit_bytes) {
  for (const ChildConfiguration& child : configuration.engine.children)
    links.push_back(std::make_unique<ChildLink>(child));
  book.outcomes()->is_over = true;
  if (configuration.near_inputs)
    configuration.near_inputs->attach(book.records, configuration.engine.children, &catalogue);
}

DriverCore::~DriverCore() {
  if (configuration.near_inputs) configuration.near_inputs->detach();
}

void DriverCore::check_open() const {
  if (flags.is_closed)
    throw Refusal(Refusal::Kind::kClosed, "this Worker was closed; make another one");
}

void DriverCore::check_run(const RunOutcomes* run) const {
  check_open();
  if (run && run != book.outcomes().get()) refuse_outside_run();
}

void refuse_outside_run() {
  throw Refusal(Refusal::Kind::kUsage,
                "a task was submitted outside its run; submit it in the function or block of the "
                "run");
}

DriverStatistics statistics_of(const DriverCore& core) {
  DriverStatistics now;
  now.tasks = core.book.counts;
  for (const auto& link : core.links) now.in_flight += link->in_flight();
  const uint64_t live = core.book.records.live();
  now.waiting = live - std::min<uint64_t>(live, now.in_flight);
  now.saved_bytes = core.regions.saved_bytes();
  now.most_saved_bytes = core.regions.most_saved_bytes();
  return now;
}

}  // namespace pto::hierarchy
