#include "driver/core.hpp"

#include <utility>

namespace pto::hierarchy {

DriverCore::DriverCore(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
                       SharedFlags& flags)
    : configuration(configuration),
      flags(flags),
      engine(std::move(engine)),
      board(configuration.board),
      regions(configuration.snapshot_limit_bytes) {
  for (const ChildConfiguration& child : configuration.engine.children)
    links.push_back(std::make_unique<ChildLink>(child));
  book.outcomes()->is_over = true;
}

void DriverCore::check_open() const {
  if (flags.is_closed)
    throw Refusal(Refusal::Kind::kClosed, "this Worker was closed; make another one");
}

}  // namespace pto::hierarchy
