#include "edges.hpp"
#include "runtime.h"

extern "C" int build_graph(Runtime* runtime, uint64_t* args, int count) {
  if (count != 4) return -1;
  const size_t bytes = 64 + 32 * args[2];
  void* host_log = reinterpret_cast<void*>(args[0]);
  void* log = runtime->host_api.device_malloc(bytes);
  if (log == nullptr || runtime->host_api.copy_to_device(log, host_log, bytes) != 0) return -1;
  runtime->record_tensor_pair(host_log, log, bytes);
  const EdgeList list{reinterpret_cast<uint64_t>(log), reinterpret_cast<const Edge*>(args[1]),
                      args[2], args[3]};
  build(
      list, [&](uint64_t* task) { return runtime->add_task(task, 4, 0, CoreType::AIV); },
      [&](int64_t from, int64_t to) {
        runtime->add_successor(static_cast<int>(from), static_cast<int>(to));
      });
  return 0;
}
