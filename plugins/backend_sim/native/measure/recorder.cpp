#include "measure/recorder.hpp"

#include <algorithm>
#include <bit>

namespace pto::sim {
namespace {

thread_local Recorder* current = nullptr;

// Joins ranges that touch.
class Joiner {
 public:
  Joiner(std::vector<pto_measured_range>& ranges, int64_t task, uint32_t kind, uint32_t core)
      : ranges_(ranges), range_{task, 0, 0, kind, core} {}
  ~Joiner() { close(); }
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // The set bits of `word` are bytes from `address` on.
  void add(uint64_t address, uint64_t word) {
    while (word != 0) {
      const auto skipped = static_cast<uint64_t>(std::countr_zero(word));
      const auto length = static_cast<uint64_t>(std::countr_one(word >> skipped));
      add_range(address + skipped, address + skipped + length);
      if (skipped + length == 64) return;
      word &= ~uint64_t{0} << (skipped + length);
    }
  }

 private:
  void add_range(uint64_t begin, uint64_t end) {
    if (begin != range_.end) {
      close();
      range_.begin = begin;
    }
    range_.end = end;
  }
  void close() {
    if (range_.end != range_.begin) ranges_.push_back(range_);
  }

  std::vector<pto_measured_range>& ranges_;
  pto_measured_range range_;
};

}  // namespace

void set_recorder(Recorder* recorder) noexcept {
  current = recorder;
}

void record_access(uint64_t address, uint64_t bytes, int32_t is_write) {
  if (current != nullptr) current->add(address, bytes, is_write != 0);
}

void Recorder::begin(uint64_t base, uint64_t bytes) {
  base_ = base;
  bytes_ = bytes;
  used_ = 0;
  last_ = {};
  by_number_.clear();
  recent_.fill(nullptr);
}

void Recorder::add(uint64_t address, uint64_t bytes, bool is_write) {
  last_ = {address, bytes, is_write};
  uint64_t first = address - base_;
  if (first >= bytes_ || bytes == 0) return;
  const uint64_t end = std::min(first + bytes, bytes_);
  while (first < end) {
    const uint64_t number = first / kPageBytes;
    const uint64_t begin_of_page = number * kPageBytes;
    const uint64_t stop = std::min(end, begin_of_page + kPageBytes);
    add_in_page(page_at(number), first - begin_of_page, stop - begin_of_page, is_write);
    first = stop;
  }
}

void Recorder::add_in_page(Page& page, uint64_t first, uint64_t end, bool is_write) {
  for (uint64_t word = first / 64; word * 64 < end; ++word) {
    const uint64_t low = std::max(first, word * 64) - word * 64;
    const uint64_t high = std::min(end, word * 64 + 64) - word * 64;
    const uint64_t below = high == 64 ? ~uint64_t{0} : (uint64_t{1} << high) - 1;
    const uint64_t mask = below & ~uint64_t{0} << low;
    if (is_write) {
      page.written[word] |= mask;
    } else {
      page.read[word] |= mask & ~page.written[word];
    }
  }
}

Recorder::Page& Recorder::page_at(uint64_t number) {
  Page*& recent = recent_[number % recent_.size()];
  if (recent != nullptr && recent->number == number) return *recent;
  auto [found, is_new] = by_number_.try_emplace(number, nullptr);
  if (is_new) {
    if (used_ == pages_.size()) pages_.emplace_back();
    found->second = &pages_[used_++];
    *found->second = Page{number, {}, {}};
  }
  return *(recent = found->second);
}

void Recorder::end(int64_t task, uint32_t core, std::vector<pto_measured_range>& ranges) {
  std::vector<const Page*> pages;
  for (size_t i = 0; i < used_; ++i) pages.push_back(&pages_[i]);
  std::sort(pages.begin(), pages.end(),
            [](const Page* one, const Page* other) { return one->number < other->number; });
  for (const uint32_t kind : {PTO_MEASURED_READ, PTO_MEASURED_WRITE}) {
    Joiner joiner(ranges, task, kind, core);
    for (const Page* page : pages) {
      const auto& words = kind == PTO_MEASURED_READ ? page->read : page->written;
      const uint64_t address = base_ + page->number * kPageBytes;
      for (uint64_t word = 0; word < kWords; ++word) joiner.add(address + word * 64, words[word]);
    }
  }
}

}  // namespace pto::sim
