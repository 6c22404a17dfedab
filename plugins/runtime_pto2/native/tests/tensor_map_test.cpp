// Tests of the tensor map: the tasks that a look-up visits, and the entries that are removed in
// each way.
#include "tensor_map.hpp"

#include <cstdlib>
#include <set>
#include <vector>

#include "check.hpp"

namespace {

using namespace pto::ring_buffer;
using Tasks = std::set<int64_t>;

constexpr uint32_t kWindow = 64;

pto_tensor_data slice(uint64_t address, uint64_t bytes, uint64_t first, uint64_t count,
                      int64_t owner = kNoTask) {
  pto_tensor_data tensor{};
  tensor.buffer = {address, bytes};
  tensor.raw_shapes[0] = bytes;
  tensor.shapes[0] = count;
  tensor.offsets[0] = tensor.start_offset = first;
  tensor.ndims = 1;
  tensor.dtype = 5;  // UINT8
  tensor.owner = owner;
  return tensor;
}

struct Map {
  pto_platform platform{};
  pto::engine::Memory memory{&platform};
  std::vector<RingTask> records = std::vector<RingTask>(kRings * kWindow);
  Rings rings;
  TensorMap map;

  explicit Map(bool full_hazards) {
    platform.reserve = [](void*, size_t bytes) { return std::calloc(bytes, 1); };
    platform.release = [](void*, void* block, size_t) { std::free(block); };
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      rings.ring[ring].window = kWindow;
      rings.ring[ring].records = &records[ring * kWindow];
    }
    CHECK(map.create(memory, 256));
    map.begin(rings, full_hazards);
  }
  ~Map() { map.destroy(); }

  void write(int64_t task, const pto_tensor_data& tensor, bool is_fresh = false) {
    map.insert_writer(locate_access(tensor), task, is_fresh);
  }
  void read(int64_t task, const pto_tensor_data& tensor) {
    map.insert_reader(locate_access(tensor), task);
  }
  Tasks writers(const pto_tensor_data& tensor) {
    Tasks tasks;
    map.find_writers(locate_access(tensor), [&](int64_t task, bool) { tasks.insert(task); });
    return tasks;
  }
  Tasks readers(const pto_tensor_data& tensor) {
    Tasks tasks;
    map.find_readers(locate_access(tensor), [&](int64_t task, bool) { tasks.insert(task); });
    return tasks;
  }
  void retire(int64_t task, CleanedBy reason) {
    const TaskId id = TaskId::of(task);
    map.retire(rings.ring[id.ring].record(id.number), reason);
  }
};

int64_t task(uint32_t ring, int64_t number) {
  return TaskId{ring, number}.value();
}

TEST(a_run_after_one_that_grew_the_map_has_the_configured_capacity) {
  Map map(false);
  CHECK(map.map.can_ever_hold(256));
  CHECK(map.map.grow_for(300));
  CHECK(map.map.can_ever_hold(300));
  map.map.begin(map.rings, false);
  CHECK(!map.map.can_ever_hold(257));
}

TEST(each_layer_of_cleaning_is_counted) {
  Map all(false);
  for (int64_t number = 0; number < 4; ++number) {
    all.write(task(0, number), slice(4096, 64, static_cast<uint64_t>(number) * 16, 16));
  }
  all.write(task(0, 4), slice(4096, 64, 48, 16));  // covers the region of task 3
  all.map.saw(0, 1);
  CHECK(all.writers(slice(4096, 64, 0, 64)) == Tasks({task(0, 1), task(0, 2), task(0, 4)}));
  all.retire(task(0, 1), CleanedBy::kBatch);
  all.retire(task(0, 2), CleanedBy::kBackPressure);
  all.retire(task(0, 3), CleanedBy::kBatch);
  const TensorMap::Statistics statistics = all.map.statistics();
  CHECK(statistics.covered == 1 && statistics.cleaned_by_lookup == 1);
  CHECK(statistics.cleaned_by_batch == 1 && statistics.cleaned_by_back_pressure == 1);
  CHECK(statistics.live == 1 && statistics.peak == 4 && statistics.lookups == 1);
}

TEST(entries_die_with_the_owner_of_their_buffer) {
  Map all(false);
  const int64_t owner = task(2, 0);
  all.write(owner, slice(8192, 1024, 0, 1024, owner), true);
  all.write(task(0, 0), slice(8192, 1024, 0, 512, owner));
  CHECK(all.writers(slice(8192, 1024, 0, 1024, owner)) == Tasks({owner, task(0, 0)}));
  all.map.saw(2, 1);
  const int64_t next = task(2, 1);
  all.write(next, slice(8192, 1024, 0, 1024, next), true);
  CHECK(all.writers(slice(8192, 1024, 0, 512, next)) == Tasks({next}));
}

TEST(readers_are_kept_under_full_hazards_only) {
  for (const bool full : {false, true}) {
    Map all(full);
    const pto_tensor_data whole = slice(4096, 64, 0, 64);
    for (int64_t number = 0; number < 8; ++number) all.read(task(1, number), whole);
    all.read(task(1, 8), slice(4096, 64, 32, 32));
    CHECK(all.readers(slice(4096, 64, 0, 16)).size() == (full ? 8u : 0u));
    CHECK(all.readers(whole).size() == (full ? 9u : 0u));
    all.map.saw(1, 4);
    CHECK(all.readers(whole).size() == (full ? 5u : 0u));
    for (int64_t number = 0; number < 6; ++number) all.retire(task(1, number), CleanedBy::kBatch);
    all.map.saw(1, 6);
    CHECK(all.readers(whole).size() == (full ? 3u : 0u));
    all.write(task(0, 0), whole);
    CHECK(all.readers(whole).empty());
    CHECK(all.map.statistics().live == 1);
    CHECK(all.writers(slice(4096, 64, 3, 1)) == Tasks({task(0, 0)}));
  }
}

TEST(a_permuted_view_is_the_same_memory) {
  Map all(false);
  pto_tensor_data tile{};
  tile.buffer = {1 << 20, 64 * 32 * 4};
  tile.ndims = 2;
  tile.raw_shapes[0] = 64, tile.raw_shapes[1] = 32;
  tile.shapes[0] = 16, tile.shapes[1] = 8;
  tile.offsets[0] = 16, tile.offsets[1] = 8;
  tile.start_offset = 16 * 32 + 8;
  tile.order[0] = 0, tile.order[1] = 1;
  tile.owner = kNoTask;
  all.write(task(0, 0), tile);
  pto_tensor_data turned = tile;
  for (uint32_t dim = 0; dim < 2; ++dim) {
    turned.raw_shapes[dim] = tile.raw_shapes[1 - dim];
    turned.shapes[dim] = tile.shapes[1 - dim];
    turned.offsets[dim] = tile.offsets[1 - dim];
    turned.order[dim] = tile.order[1 - dim];
  }
  CHECK(all.writers(turned) == Tasks({task(0, 0)}));
  turned.offsets[0] = 16;  // now the next tile of the same rows
  turned.start_offset = 16 * 32 + 16;
  CHECK(all.writers(turned).empty());
  CHECK(all.map.statistics().conservative_edges == 0);
}

}  // namespace
