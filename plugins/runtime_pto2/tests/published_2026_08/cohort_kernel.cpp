// Kernels that wait for each other: blocks at a barrier, or the lanes of a cluster at a pipe.
#include <sched.h>
#include <unistd.h>

#include "intrinsic.h"
#include "pipe_sync.h"
#include "pto/kernel/print.hpp"
#include "tensor.h"

#if defined(__DAV_CUBE__) == defined(__DAV_VEC__)
#error "the simulator defines one of __DAV_CUBE__ and __DAV_VEC__"
#endif

namespace {

// Wait until `is_true` returns true. A wait that takes long leaves the processor to others.
template <class Condition>
void wait_until(Condition is_true) {
  for (uint32_t tries = 0; !is_true(); ++tries) {
    if (tries < 100'000) {
      sched_yield();
    } else {
      usleep(10'000);
    }
  }
}

template <class Element>
Element* data(const ChipTensor& tensor) {
  return reinterpret_cast<Element*>(tensor.buffer.addr) + tensor.start_offset;
}

// Return the place of this core among those of the task, and in `count` their number.
int32_t place_of(__gm__ int64_t* args, int32_t lanes, int32_t& count) {
  count = get_block_num(args) * lanes;
  if (lanes == 1) return get_block_idx(args);
#ifdef __DAV_CUBE__
  return 3 * get_block_idx(args);
#else
  return 3 * get_block_idx(args) + 1 + get_sub_block_id(args);
#endif
}

}  // namespace

#if !defined(PIPE) && !defined(OWN)

// All cores of the task, and `absent` others that do not exist, meet `rounds` times. Each counts
// its rounds in `cells`, and checks after each meeting that no other is behind. The first one
// writes 1 to `out`, or -1 after a mistake. If some are absent, the last core to wait says so.
extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  auto* cells = data<int32_t>(*reinterpret_cast<const ChipTensor*>(args[0]));
  int32_t count;
  const int32_t place = place_of(args, static_cast<int32_t>(args[2]), count);
  const auto rounds = static_cast<int32_t>(args[3]);
  const auto expected = count + static_cast<int32_t>(args[4]);
#ifdef FAILS
  pto_printf("block %d", place);
  PTO_ASSERT(place != FAILS, "of %d", count);
#endif
  int32_t* met = cells + 72;
  const auto has_met = [met](int32_t number) {
    return __atomic_load_n(met, __ATOMIC_ACQUIRE) >= number;
  };
  int32_t* mistakes = cells + 73;
  for (int32_t round = 1; round <= rounds; ++round) {
    __atomic_store_n(&cells[place], round, __ATOMIC_RELAXED);
    const int32_t before = __atomic_fetch_add(met, 1, __ATOMIC_ACQ_REL);
    if (before + 1 == count && count != expected && write(2, "waiting\n", 8) < 0) return;
    wait_until([&] { return has_met(round * expected); });
    for (int32_t other = 0; other < count; ++other) {
      if (__atomic_load_n(&cells[other], __ATOMIC_RELAXED) < round) *mistakes = 1;
    }
  }
  pipe_sync();
  __atomic_fetch_add(met, 1, __ATOMIC_ACQ_REL);
  if (place != 0) return;
  wait_until([&] { return has_met((rounds + 1) * count); });
  *data<float>(*reinterpret_cast<const ChipTensor*>(args[1])) = *mistakes == 0 ? 1.0f : -1.0f;
}

#else

// The AIC core pushes tiles to the AIV lanes in turn. They double the values and push them back.
namespace {

uint32_t (*pto_sim_get_subblock_id)();
void* (*pto_sim_get_pipe_shared_state)(uint64_t key, size_t bytes);

struct Pipe {
  static constexpr uint32_t kSlots = 2;
  uint32_t pushed;
  uint32_t popped;
  float tiles[kSlots][16];

  void push(const float* tile) {
    wait_until([this] { return pushed - __atomic_load_n(&popped, __ATOMIC_ACQUIRE) < kSlots; });
    std::memcpy(tiles[pushed % kSlots], tile, sizeof tiles[0]);
    __atomic_store_n(&pushed, pushed + 1, __ATOMIC_RELEASE);
  }
  void pop(float* tile) {
    wait_until([this] { return __atomic_load_n(&pushed, __ATOMIC_ACQUIRE) != popped; });
    std::memcpy(tile, tiles[popped % kSlots], sizeof tiles[0]);
    __atomic_store_n(&popped, popped + 1, __ATOMIC_RELEASE);
  }
};

Pipe& pipe(uint64_t key) {
  return *static_cast<Pipe*>(pto_sim_get_pipe_shared_state(key, sizeof(Pipe)));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void pto_sim_register_hooks(void* id,
                                                                              void* state) {
  pto_sim_get_subblock_id = reinterpret_cast<decltype(pto_sim_get_subblock_id)>(id);
  pto_sim_get_pipe_shared_state = reinterpret_cast<decltype(pto_sim_get_pipe_shared_state)>(state);
}

#if defined(OWN)

// Write 1 if the memory of this task stays as this task has written it, otherwise -1.
extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const auto bytes = static_cast<size_t>(args[1]);
  auto* own = static_cast<volatile size_t*>(pto_sim_get_pipe_shared_state(0, bytes));
  float& out = *data<float>(*reinterpret_cast<const ChipTensor*>(args[0]));
  out = *own == 0 ? 1.0f : -1.0f;
  *own = bytes;
  for (int i = 0; i < 10; ++i) {
    usleep(300);
    if (*own != bytes) out = -1;
  }
}

#else

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const auto tiles = static_cast<uint32_t>(args[1]);
  float tile[16];
#ifdef __DAV_CUBE__
#ifdef FAILS
  while (pipe(uint64_t{0}).popped == 0) {  // for ever
  }
#endif
  float* out = data<float>(*reinterpret_cast<const ChipTensor*>(args[0])) + get_block_idx(args);
  *out = 0;
  for (uint32_t i = 0; i < tiles; ++i) {
    for (float& value : tile) value = static_cast<float>(i);
    pipe(i % 2).push(tile);
    if (i + 1 < Pipe::kSlots) continue;
    pipe(2 + (i + 1) % 2).pop(tile);
    *out += tile[i % 16];
  }
  pipe(2 + (tiles + 1) % 2).pop(tile);
  *out += tile[0];
#else
  const uint32_t lane = pto_sim_get_subblock_id();
#ifdef FAILS
  PTO_ASSERT(lane == 0);
#endif
#ifdef CRASHES
  *reinterpret_cast<volatile float*>(uint64_t{64}) = 1;
#endif
  for (uint32_t i = lane; i < tiles; i += 2) {
    pipe(lane).pop(tile);
    const bool is_right = static_cast<int32_t>(lane) == get_sub_block_id(args);
    for (float& value : tile) value *= is_right ? 2 : -1;
    pipe(2 + lane).push(tile);
  }
#endif
}

#endif

#endif
