//
// Invariant of this file: An allocated range never straddles the end of its ring and overlaps no
// live range. Its place depends only on the reservations, not on timing.
#include "pto/engine/heap_ring.hpp"

#include <deque>
#include <random>

#include "check.hpp"

namespace {

using pto::engine::HeapRing;

TEST(ranges_follow_one_another) {
  HeapRing ring(100);
  CHECK(ring.try_reserve(40, 0).position == 0);
  CHECK(ring.try_reserve(60, 0).position == 40);
  CHECK(!ring.try_reserve(1, 0).fits);
  CHECK(ring.used(0) == 100 && ring.used(40) == 60);
  CHECK(ring.try_reserve(40, 40).position == 0);
}

TEST(a_range_never_straddles_the_end) {
  HeapRing ring(100);
  CHECK(ring.try_reserve(70, 0).fits);
  CHECK(!ring.try_reserve(40, 39).fits);
  const HeapRing::Range range = ring.try_reserve(40, 40);
  CHECK(range.fits && range.position == 0 && range.begin == 100 && range.end == 140);
}

TEST(skipped_units_are_freed_with_the_range_before_them) {
  HeapRing ring(100);
  CHECK(ring.try_reserve(60, 0).end == 60);
  CHECK(ring.try_reserve(60, 60).begin == 100);  // skips [60, 100)
  CHECK(ring.used(60) == 60);
  CHECK(ring.try_reserve(40, 60).position == 60);
  CHECK(!ring.try_reserve(1, 60).fits);
}

TEST(an_empty_ring_accepts_a_range_of_its_size_at_any_head) {
  HeapRing ring(100);
  CHECK(ring.try_reserve(30, 0).fits);
  CHECK(ring.used(30) == 0);
  const HeapRing::Range range = ring.try_reserve(100, 30);
  CHECK(range.fits && range.position == 0 && range.begin == 100);
  CHECK(!ring.try_reserve(1, 30).fits);
  CHECK(!ring.can_ever_fit(101) && !ring.try_reserve(101, 200).fits);
}

TEST(a_refused_reservation_changes_nothing) {
  HeapRing ring(100);
  CHECK(ring.try_reserve(70, 0).fits);
  CHECK(!ring.try_reserve(40, 0).fits);
  CHECK(ring.head() == 70);
  CHECK(ring.try_reserve(30, 0).position == 70);
}

TEST(an_empty_range_needs_no_free_space) {
  HeapRing ring(8);
  CHECK(ring.try_reserve(8, 0).fits);
  const HeapRing::Range range = ring.try_reserve(0, 0);
  CHECK(range.fits && range.begin == 8 && range.end == 8);
}

TEST(unusable_units_are_never_reserved) {
  HeapRing pool(16, 1);
  CHECK(pool.capacity() == 15);
  CHECK(pool.try_reserve(15, 0).position == 1);
  CHECK(pool.try_reserve(10, 15).position == 1);
  CHECK(!pool.can_ever_fit(16));
}

struct Live {
  HeapRing::Range range;
  uint64_t units;
};

// Require that live ranges share no unit, and that a ring refuses a range only if it has no
// contiguous free space for the range.
void random_ranges(uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t size = 1 + random() % 64;
  HeapRing ring(size), idle(size);
  std::deque<Live> live;
  uint64_t tail = 0, idle_tail = 0;
  for (int step = 0; step < 500; ++step) {
    const uint64_t units = random() % (size + 1);
    HeapRing::Range range = ring.try_reserve(units, tail);
    while (!range.fits) {
      CHECK(!live.empty());
      tail = live.front().range.end;
      live.pop_front();
      range = ring.try_reserve(units, tail);
    }
    CHECK(range.position + units <= size);
    for (const Live& other : live) {
      CHECK(units == 0 || other.units == 0 || range.position + units <= other.range.position ||
            other.range.position + other.units <= range.position);
    }
    live.push_back({range, units});
    // the place does not depend on which ranges were freed
    const HeapRing::Range same = idle.try_reserve(units, idle_tail);
    CHECK(same.fits && same.begin == range.begin && same.position == range.position);
    idle_tail = same.end;
    if (random() % 4 == 0) {
      tail = live.front().range.end;
      live.pop_front();
    }
  }
}

TEST(random_ranges_never_overlap_and_their_places_depend_on_sizes_only) {
  for (uint64_t seed = 1; seed <= 500; ++seed) random_ranges(seed);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
