#include "arguments/shared_ranges.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace pto::hierarchy {

SharedRanges& SharedRanges::of_process() {
  static SharedRanges ranges;
  return ranges;
}

Sharing SharedRanges::of(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  if (address >= last_begin_ && end <= last_end_) return Sharing::kShared;
  Sharing found = look_up(address, end);
  if (found != Sharing::kShared) {
    read();
    found = look_up(address, end);
  }
  if (found == Sharing::kShared) {
    const Range* range = range_at(address);
    last_begin_ = range->begin;
    last_end_ = range->end;
  }
  return found;
}

void SharedRanges::forget() {
  ranges_.clear();
  last_begin_ = last_end_ = 0;
}

const SharedRanges::Range* SharedRanges::range_at(uint64_t address) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t value, const Range& range) { return value < range.begin; });
  if (after == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(after);
  return address < range.end ? &range : nullptr;
}

Sharing SharedRanges::look_up(uint64_t address, uint64_t end) const {
  bool is_shared = true;
  do {
    const Range* range = range_at(address);
    if (!range) return Sharing::kUnmapped;
    is_shared &= range->is_shared;
    address = range->end;
  } while (address < end);
  return is_shared ? Sharing::kShared : Sharing::kPrivate;
}

void SharedRanges::read() {
  ranges_.clear();
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/maps", "re"),
                                                   &std::fclose);
  char* line = nullptr;
  size_t capacity = 0;
  while (file && ::getline(&line, &capacity, file.get()) > 0) {
    uint64_t begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, access) != 3) continue;
    if (access[0] != 'r' || access[1] != 'w') continue;
    const bool is_shared = access[3] == 's';
    if (!ranges_.empty() && ranges_.back().end == begin && ranges_.back().is_shared == is_shared)
      ranges_.back().end = end;
    else
      ranges_.push_back({begin, end, is_shared});
  }
  std::free(line);
}

}  // namespace pto::hierarchy
