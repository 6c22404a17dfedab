#include "driver/copies.hpp"

#include <algorithm>
#include <iterator>

#include "engine/interface.hpp"

namespace pto::hierarchy {

Copies::Parts::iterator Copies::split(uint64_t at) {
  const auto next = parts_.lower_bound(at);
  if (next == parts_.begin()) return next;
  const auto last = std::prev(next);
  if (last->second.end <= at) return next;
  const auto made = parts_.emplace_hint(next, at, last->second);
  last->second.end = at;
  return made;
}

void Copies::add(ByteRange range, int32_t child) {
  if (parts_.size() >= kMost) parts_.clear();
  auto part = split(range.begin);
  split(range.end);
  for (uint64_t at = range.begin; at < range.end; at = part->second.end, ++part) {
    if (part == parts_.end() || part->first > at) {
      const uint64_t end = part == parts_.end() ? range.end : std::min(part->first, range.end);
      part = parts_.emplace_hint(part, at, Part{end, {child}});
      continue;
    }
    auto& children = part->second.children;
    if (std::find(children.begin(), children.end(), child) == children.end())
      children.push_back(child);
  }
}

void Copies::replace(ByteRange range, int32_t child) {
  if (parts_.size() >= kMost) parts_.clear();
  const auto first = split(range.begin);
  const auto last = split(range.end);
  parts_.erase(first, last);
  if (child != kNone) parts_.emplace(range.begin, Part{range.end, {child}});
}

void Copies::forget(int32_t child) {
  for (auto part = parts_.begin(); part != parts_.end();) {
    auto& children = part->second.children;
    children.erase(std::remove(children.begin(), children.end(), child), children.end());
    part = children.empty() ? parts_.erase(part) : std::next(part);
  }
}

void Copies::count(ByteRange range, std::span<uint64_t> held) const {
  auto part = parts_.upper_bound(range.begin);
  if (part != parts_.begin() && std::prev(part)->second.end > range.begin) --part;
  for (; part != parts_.end() && part->first < range.end; ++part) {
    const uint64_t bytes =
        std::min(part->second.end, range.end) - std::max(part->first, range.begin);
    for (const int32_t child : part->second.children) held[static_cast<size_t>(child)] += bytes;
  }
}

}  // namespace pto::hierarchy
