// The rings of a trace.
//
// Invariant of this file: The reader gets the records of a track in the order in which they were
// written; a full ring drops the newest record, or replaces the oldest one; the numbers of the
// records show where and how many.
#include <thread>
#include <vector>

#include "check.hpp"
#include "pto/abi/trace.h"

namespace {

struct Ring {
  explicit Ring(size_t entries) : records(entries) {
    ring.records = records.data();
    ring.mask = entries - 1;
  }

  void write(uint64_t value) {
    const pto_trace_record record = {value, value, ~value, 0, PTO_TRACE_START, PTO_TRACK_WORKER};
    pto_trace_write(&ring, &record);
  }

  // Called by the reader.
  void drain(std::vector<pto_trace_record>& out) {
    const uint64_t end = __atomic_load_n(&ring.written, __ATOMIC_ACQUIRE);
    for (uint64_t at = ring.read; at < end; ++at) out.push_back(records[at & ring.mask]);
    __atomic_store_n(&ring.read, end, __ATOMIC_RELEASE);
  }

  pto_trace_ring ring{};
  std::vector<pto_trace_record> records;
};

TEST(a_full_ring_drops_the_newest_records) {
  Ring ring(4);
  for (uint64_t i = 0; i < 7; ++i) ring.write(i);
  std::vector<pto_trace_record> taken;
  ring.drain(taken);
  CHECK_EQUAL(taken.size(), size_t{4});
  CHECK_EQUAL(ring.ring.attempts, uint64_t{7});
  for (uint64_t i = 7; i < 9; ++i) ring.write(i);
  ring.drain(taken);
  CHECK_EQUAL(taken.size(), size_t{6});
  const std::vector<uint64_t> kept = {0, 1, 2, 3, 7, 8};
  for (size_t i = 0; i < kept.size(); ++i) {
    CHECK_EQUAL(taken[i].a, kept[i]);
    CHECK_EQUAL(uint64_t{taken[i].number}, kept[i]);
  }
}

TEST(a_ring_that_overwrites_keeps_the_newest_records) {
  Ring ring(4);
  ring.ring.overwrites = 1;
  for (uint64_t i = 0; i < 11; ++i) ring.write(i);
  CHECK_EQUAL(ring.ring.attempts, uint64_t{11});
  CHECK_EQUAL(ring.ring.written, uint64_t{11});
  for (uint64_t i = 7; i < 11; ++i) CHECK_EQUAL(ring.records[i & 3].a, i);
}

// Run under ThreadSanitizer, this test also shows that no record is read while it is written.
TEST(a_reader_drains_while_the_writer_writes) {
  for (const size_t entries : {size_t{2}, size_t{64}, size_t{1024}}) {
    constexpr uint64_t kCount = 200'000;
    Ring ring(entries);
    std::thread writer([&] {
      for (uint64_t i = 0; i < kCount; ++i) ring.write(i);
    });
    std::vector<pto_trace_record> taken;
    while (__atomic_load_n(&ring.ring.attempts, __ATOMIC_RELAXED) < kCount) {
      ring.drain(taken);
      std::this_thread::yield();
    }
    writer.join();
    ring.drain(taken);
    CHECK_EQUAL(ring.ring.attempts, kCount);
    uint64_t dropped = 0, next = 0;
    for (const pto_trace_record& record : taken) {
      CHECK(record.a >= next && record.b == ~record.a && record.clock == record.a);
      CHECK_EQUAL(uint64_t{record.number}, record.a);
      dropped += record.a - next;
      next = record.a + 1;
    }
    CHECK_EQUAL(taken.size() + dropped + (kCount - next), kCount);
    CHECK_EQUAL(ring.ring.written, uint64_t{taken.size()});
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
