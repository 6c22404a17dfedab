#include "shape.hpp"

#include "error.hpp"

namespace pto::sim {
namespace {

constexpr int32_t kDefaultThreads = 3;

}  // namespace

pto_topology make_topology(uint32_t blocks, uint32_t schedulers) noexcept {
  pto_topology topology{};
  topology.blocks = blocks;
  topology.cores = 3 * blocks;
  topology.schedulers = schedulers;
  for (uint32_t core = 0; core < topology.cores; ++core) {
    topology.core_type[core] = core < blocks ? PTO_CORE_AIC : PTO_CORE_AIV;
    const uint32_t cluster = core < blocks ? core : (core - blocks) / 2;
    insert(topology.thread_cores[cluster % schedulers], core);
  }
  return topology;
}

pto_status run_shape(const pto_call_config* config, uint32_t capabilities, uint32_t blocks,
                     RunShape& shape, pto_error* error) noexcept {
  const int32_t asked = config != nullptr ? config->block_dim : 0;
  const int32_t threads = config != nullptr ? config->aicpu_thread_num : kDefaultThreads;
  if (asked < 0 || asked > static_cast<int32_t>(blocks)) {
    return fail(
        error, PTO_ERROR_USAGE,
        "block_dim is %d, but this simulated device has %u blocks; use 0 (all blocks) to %u, or "
        "open it with a larger sim.blocks (at most %d)",
        asked, blocks, blocks, PTO_MAX_BLOCKS);
  }
  if (threads < 1 || threads > PTO_MAX_AICPU_THREADS) {
    return fail(error, PTO_ERROR_USAGE, "aicpu_thread_num is %d; use 1 to %d", threads,
                PTO_MAX_AICPU_THREADS);
  }
  const bool on_host = (capabilities & PTO_RUNTIME_HOST_ORCHESTRATION) != 0;
  shape.shares_thread = threads == 1 && !on_host;
  const int32_t schedulers = on_host || threads == 1 ? threads : threads - 1;
  shape.topology = make_topology(asked == 0 ? blocks : static_cast<uint32_t>(asked),
                                 static_cast<uint32_t>(schedulers));
  return PTO_OK;
}

}  // namespace pto::sim
