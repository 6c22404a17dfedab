#include "driver/core.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "processes/protected_pages.hpp"

namespace pto::worker {
namespace {

void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

}  // namespace

void SavedRegions::reserve(int64_t task, std::vector<SavedRange> ranges, uint64_t bytes) {
  if (bytes == 0) return;
  reserved_bytes_ += bytes;
  kept_[task] = {std::move(ranges), bytes, nullptr};
}

void SavedRegions::save(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end() || found->second.copy) return;
  Kept& kept = found->second;
  kept.copy = std::make_unique_for_overwrite<std::byte[]>(kept.bytes);
  std::byte* to = kept.copy.get();
  for (const SavedRange& range : kept.ranges) {
    const OwnAccess access(range.address, range.bytes);
    std::memcpy(to, pointer(range.address), range.bytes);
    to += range.bytes;
  }
  saved_bytes_ += kept.bytes;
  most_saved_bytes_ = std::max(most_saved_bytes_, saved_bytes_);
}

void SavedRegions::restore(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end() || !found->second.copy) return;
  const std::byte* from = found->second.copy.get();
  for (const SavedRange& range : found->second.ranges) {
    const OwnAccess access(range.address, range.bytes);
    std::memcpy(pointer(range.address), from, range.bytes);
    from += range.bytes;
  }
}

void SavedRegions::drop(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end() || !found->second.copy) return;
  saved_bytes_ -= found->second.bytes;
  found->second.copy.reset();
}

void SavedRegions::end(int64_t task) {
  const auto found = kept_.find(task);
  if (found == kept_.end()) return;
  drop(task);
  reserved_bytes_ -= found->second.bytes;
  kept_.erase(found);
}

DriverCore::DriverCore(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
                       SharedFlags& flags)
    : configuration(configuration),
      flags(flags),
      engine(std::move(engine)),
      progress(configuration.progress),
      tracer(progress),
      regions(configuration.snapshot_limit_bytes),
      delays(flags.delays) {
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

RunOutcomes& DriverCore::open_run(RunOutcomes* run) const {
  check_open();
  if (run && run->is_over) refuse_outside_run();
  return run ? *run : *book.outcomes();
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

}  // namespace pto::worker
