// The recorder of measured accesses against two sets of bytes.
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <set>
#include <vector>

#include "check.hpp"
#include "recorder.hpp"

namespace {

using pto::sim::Recorder;

constexpr uint64_t kBase = 1 << 20;
constexpr uint64_t kBytes = 3 * 4096;

// The bytes of all ranges of one kind. Ranges must be in order and must not touch.
std::set<uint64_t> bytes_of(const std::vector<pto_measured_range>& ranges, uint32_t kind) {
  std::set<uint64_t> found;
  uint64_t last = 0;
  for (const pto_measured_range& range : ranges) {
    if (range.kind != kind) continue;
    CHECK(range.begin > last && range.end > range.begin);
    last = range.end;
    for (uint64_t at = range.begin; at < range.end; ++at) found.insert(at);
  }
  return found;
}

TEST(random_accesses_are_recorded_to_the_byte) {
  Recorder recorder;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::set<uint64_t> read, written;
    recorder.begin(kBase, kBytes);
    for (int i = 0; i < 40; ++i) {
      const uint64_t address = kBase - 200 + random() % (kBytes + 400);
      const uint64_t bytes = random() % (i % 8 == 0 ? 6000 : 70);
      const bool is_write = random() % 2 != 0;
      recorder.add(address, bytes, is_write);
      if (address < kBase) continue;  // an access that begins outside is not recorded
      for (uint64_t at = address; at < address + bytes && at < kBase + kBytes; ++at) {
        if (is_write) {
          written.insert(at);
        } else if (written.count(at) == 0) {
          read.insert(at);
        }
      }
    }
    std::vector<pto_measured_range> ranges;
    recorder.end(7, 3, ranges);
    CHECK(bytes_of(ranges, PTO_MEASURED_READ) == read);
    CHECK(bytes_of(ranges, PTO_MEASURED_WRITE) == written);
    for (const pto_measured_range& range : ranges) CHECK(range.task == 7 && range.core == 3);
  }
}

TEST(accesses_outside_of_a_call_are_ignored) {
  Recorder recorder;
  recorder.begin(kBase, kBytes);
  pto::sim::record_access(kBase, 8, 1);
  pto::sim::set_recorder(&recorder);
  pto::sim::record_access(kBase + 8, 8, 1);
  pto::sim::set_recorder(nullptr);
  std::vector<pto_measured_range> ranges;
  recorder.end(0, 0, ranges);
  CHECK_EQUAL(ranges.size(), size_t{1});
  CHECK_EQUAL(ranges[0].begin, kBase + 8);
}

TEST(guarded_pages_are_recorded_with_their_kind) {
  constexpr size_t kPages = 64;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* bytes = static_cast<volatile unsigned char*>(memory);
  const auto base = reinterpret_cast<uint64_t>(memory);
  pto::sim::PageGuard guard(base, kPages * page);
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::set<uint64_t> read, written;
    CHECK(guard.begin());
    for (int i = 0; i < 40; ++i) {
      const size_t at = random() % (kPages * page);
      if (random() % 2 != 0) {
        bytes[at] = 1;
        written.insert(at / page);
      } else {
        static_cast<void>(bytes[at]);
        read.insert(at / page);
      }
    }
    std::vector<pto_measured_range> ranges;
    guard.end(7, 3, ranges);
    std::set<uint64_t> expected = read;
    expected.insert(written.begin(), written.end());
    CHECK_EQUAL(ranges.size(), expected.size());
    for (const pto_measured_range& range : ranges) {
      CHECK(range.task == 7 && range.core == 3 && range.end - range.begin == page);
      const uint64_t number = (range.begin - base) / page;
      CHECK(expected.erase(number) == 1);
      CHECK_EQUAL(range.kind == PTO_MEASURED_WRITE, written.count(number) == 1);
    }
  }
  for (size_t at = 0; at < kPages * page; ++at) bytes[at] = 2;
  munmap(memory, kPages * page);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run(argc, argv);
}
