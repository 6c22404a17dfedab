#include "arguments/visible_memory.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace pto::worker {

VisibleMemory::VisibleMemory(const std::optional<std::vector<AddressSpan>>& attached)
    : is_forked_(!attached) {
  at_start_.read();
  if (attached) at_start_.keep_only(*attached);
}

VisibleMemory::Answer VisibleMemory::of(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  SharedRanges& now = SharedRanges::of_process();
  if (version_ == now.version() && address >= last_begin_ && end <= last_end_)
    return Answer::kVisible;
  Sharing sharing = now.of(address, bytes);
  if (sharing == Sharing::kShared && !is_fresh_ && !now.is_own(address)) {
    is_fresh_ = true;
    now.forget();
    sharing = now.of(address, bytes);
  }
  if (sharing == Sharing::kPrivate) return Answer::kPrivate;
  if (sharing == Sharing::kUnmapped) return Answer::kUnmapped;
  if (is_same_as_at_start(address, end)) return Answer::kVisible;
  return is_forked_ ? Answer::kMappedLater : Answer::kNotAttached;
}

void VisibleMemory::begin_run() {
  is_fresh_ = false;
  if (!last_is_own_) last_begin_ = last_end_ = 0;
}

bool VisibleMemory::is_same_as_at_start(uint64_t address, uint64_t end) {
  SharedRanges& now = SharedRanges::of_process();
  while (true) {
    bool is_own = false;
    const AddressSpan span = now.common(at_start_, address, &is_own);
    if (span.end <= address) return false;
    if (end <= span.end) {
      version_ = now.version();
      last_begin_ = span.begin;
      last_end_ = span.end;
      last_is_own_ = is_own;
      return true;
    }
    address = span.end;
  }
}

namespace {

constexpr char kOwnPath[] = "/memfd:pto-worker";  // see SharedMapping

}  // namespace

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
  ++version_;
}

bool SharedRanges::is_own(uint64_t address) const {
  const Range* range = range_at(address);
  return range && range->is_own;
}

void SharedRanges::keep_only(const std::vector<AddressSpan>& kept) {
  std::erase_if(ranges_, [&](const Range& range) {
    return std::none_of(kept.begin(), kept.end(), [&](const AddressSpan& span) {
      return span.begin <= range.begin && range.end <= span.end;
    });
  });
}

AddressSpan SharedRanges::common(const SharedRanges& other, uint64_t address, bool* is_own) const {
  const Range* here = range_at(address);
  const Range* there = other.range_at(address);
  if (!here || !there || !here->is_shared || !here->is_same_memory(*there)) return {0, 0};
  *is_own = here->is_own;
  return {std::max(here->begin, there->begin), std::min(here->end, there->end)};
}

bool SharedRanges::Range::is_same_memory(const Range& other) const {
  return is_shared == other.is_shared && is_own == other.is_own && device == other.device &&
         inode == other.inode && file_begin == other.file_begin;
}

bool SharedRanges::Range::continues(const Range& other) const {
  return other.end == begin && is_same_memory(other);
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
  while (file && ::getline(&line, &capacity, file.get()) > 0) add(line);
  std::free(line);
}

void SharedRanges::add(const char* line) {
  Range range{};
  char access[5] = {};
  uint64_t offset = 0, major = 0, minor = 0, inode = 0;
  int path = 0;
  if (std::sscanf(line,
                  "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx64 ":%" SCNx64 " %" SCNu64 " %n",
                  &range.begin, &range.end, access, &offset, &major, &minor, &inode, &path) != 7)
    return;
  if (access[0] != 'r' || access[1] != 'w') return;
  range.is_shared = access[3] == 's';
  if (range.is_shared) {
    range.is_own = std::strncmp(line + path, kOwnPath, sizeof kOwnPath - 1) == 0;
    range.device = major << 32 | minor;
    range.inode = inode;
    range.file_begin = range.begin - offset;
  }
  if (!ranges_.empty() && range.continues(ranges_.back()))
    ranges_.back().end = range.end;
  else
    ranges_.push_back(range);
}

}  // namespace pto::worker
