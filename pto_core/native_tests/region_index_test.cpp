// Examples of look-ups, and their cost. region_property_test compares random ones with a model.
#include "pto/engine/region_index.hpp"

#include <algorithm>
#include <initializer_list>

#include "check.hpp"
#include "heap_memory.hpp"

namespace {

using namespace pto::engine;

struct Dim {
  uint64_t raw, low, extent;
};

// `dims`: (raw, low, extent) of each dimension, the slowest first, as in a NumPy shape.
Region box(uint64_t base, uint64_t element, std::initializer_list<Dim> dims) {
  uint64_t first = base;
  uint64_t stride = element;
  for (auto dim = std::rbegin(dims); dim != std::rend(dims); ++dim) {
    first += dim->low * stride;
    stride *= dim->raw;
  }
  Region region;
  RegionBuilder builder(region, first, element, -1);
  for (auto dim = std::rbegin(dims); dim != std::rend(dims); ++dim) {
    builder.add(dim->raw, dim->low, dim->extent);
  }
  builder.finish();
  return region;
}

struct Policy {
  uint32_t alive_from = 0;
  RegionState state(uint32_t id) const {
    return id >= alive_from ? RegionState::kLive : RegionState::kRetired;
  }
  void removed(uint32_t, RegionRemoval why) { ++(why == RegionRemoval::kStale ? stale : covered); }
  int stale = 0;
  int covered = 0;
};

struct Index {
  HeapMemory memory;
  RegionIndex<uint32_t> regions;
  Policy policy;
  bool conservative = false;

  explicit Index(uint32_t capacity = 64) {
    CHECK(regions.create(memory.memory(), capacity));
    regions.restart();
  }
  ~Index() { regions.destroy(); }

  void write(const Region& region, uint32_t id) {
    RegionPlace place;
    regions.value(regions.replace(region, place, policy, false)) = id;
  }

  std::vector<uint32_t> find(const Region& region) {
    std::vector<uint32_t> found;
    RegionPlace place;
    conservative = false;
    regions.find(region, place, policy, [&](uint32_t id, bool by_hull) {
      found.push_back(id);
      conservative |= by_hull;
    });
    std::sort(found.begin(), found.end());
    return found;
  }
};

using Ids = std::vector<uint32_t>;

TEST(canonical_regions) {
  CHECK(box(64, 4, {{8, 0, 8}, {16, 0, 16}}).dims == 0);
  CHECK(box(64, 4, {{8, 0, 8}, {16, 0, 16}}).end == 64 + 512);
  CHECK(box(64, 4, {{8, 2, 0}}).is_key());
  CHECK(box(64, 4, {}).end == 68);
  const Region row = box(64, 4, {{8, 3, 1}, {1, 0, 1}, {16, 4, 8}});
  CHECK(row.dims == 2 && row.raw[0] == 64 && row.raw[1] == 8 && row.contiguous);
  CHECK(row.base == 64 && row.begin == 64 + 3 * 64 + 16 && row.end == row.begin + 32);
  CHECK(!box(64, 4, {{8, 0, 2}, {16, 0, 4}}).contiguous);
}

TEST(boxes_of_one_frame_overlap_exactly) {
  Index index;
  index.write(box(0, 4, {{64, 0, 64}, {64, 0, 8}}), 1);  // columns 0 to 7
  CHECK(index.find(box(0, 4, {{64, 0, 64}, {64, 8, 8}})).empty());
  CHECK(index.find(box(0, 4, {{64, 5, 1}, {64, 7, 2}})) == Ids{1});
  CHECK(index.find(box(0, 2, {{64, 5, 1}, {128, 14, 4}})) == Ids{1});  // equal memory
  CHECK(!index.conservative);
}

TEST(boxes_of_different_shapes_overlap_by_hull) {
  Index index;
  index.write(box(0, 4, {{64, 0, 64}, {64, 0, 8}}), 1);
  CHECK(index.find(box(0, 4, {{4096, 8, 8}})) == Ids{1});
  CHECK(index.conservative);
  CHECK(index.find(box(0, 4, {{4096, 64 * 63 + 8, 8}})).empty());
  CHECK(index.find(box(0, 4, {{4096, 0, 4096}})) == Ids{1});
  CHECK(!index.conservative);
  CHECK(index.find(box(128, 4, {{16, 0, 16}})) == Ids{1});  // only the byte hulls overlap
  CHECK(index.conservative);
}

TEST(a_writer_covers_the_regions_inside_it) {
  Index index;
  for (uint32_t tile = 0; tile < 16; ++tile) {
    index.write(box(0, 4, {{64, tile / 4 * 16, 16}, {64, tile % 4 * 16, 16}}), tile);
  }
  index.write(box(0, 4, {{64, 0, 32}, {64, 0, 24}}), 16);  // covers two tiles and half of two other
                                                           // tiles
  CHECK(index.policy.covered == 2);
  CHECK((index.find(box(0, 4, {{64, 0, 16}, {64, 0, 64}})) == Ids{1, 2, 3, 16}));
  index.write(Region::range(0, 64 * 64 * 4), 17);
  CHECK(index.regions.live() == 1);
  CHECK(index.find(box(0, 4, {{64, 0, 16}, {64, 0, 16}})) == Ids{17});
}

TEST(dead_values_are_removed_when_a_search_finds_them) {
  Index index;
  for (uint32_t id = 0; id < 8; ++id) index.write(box(0, 4, {{64, id * 8, 8}}), id);
  index.policy.alive_from = 4;
  CHECK((index.find(Region::range(0, 256)) == Ids{4, 5, 6, 7}));
  CHECK(index.policy.stale == 4 && index.regions.live() == 4);
}

TEST(all_shapes_in_a_small_index) {
  Index index(1000);
  uint32_t id = 0;
  for (uint64_t extent = 1; extent <= 40; ++extent) {
    for (uint64_t low = 0; low + extent <= 64 && index.regions.has_space(1); low += 5) {
      const Region region = box(0, 1, {{64, low, extent}, {64, low / 2, extent}});
      index.find(region);
      index.write(region, id++);
    }
  }
  CHECK(!index.find(box(0, 1, {{64, 0, 64}, {64, 0, 63}})).empty());
}

// The cost of a look-up, counted in steps, does not depend on the number of regions.
TEST(a_lookup_reads_few_cells_among_many_regions) {
  Index index(20000);
  const auto tile = [](uint64_t at) {
    return box(0, 4, {{4096, at / 128 * 32, 32}, {4096, at % 128 * 32, 32}});
  };
  for (uint32_t id = 0; id < 16384; ++id) index.write(tile(id), id);
  const uint64_t before = index.regions.visited();
  for (uint32_t id = 0; id < 16384; ++id) CHECK(index.find(tile(id)) == Ids{id});
  CHECK(index.regions.visited() - before < 4 * 16384);
  const uint64_t halo = index.regions.visited();
  CHECK(index.find(box(0, 4, {{4096, 31, 34}, {4096, 31, 34}})).size() == 9);
  CHECK(index.regions.visited() - halo < 100);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
