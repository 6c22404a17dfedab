// The runtime table, through which a backend drives the runtime, and the only function that the
// library exports.
#include <cstring>

#include "runtime.hpp"

namespace pto_runtime_template {
namespace {

Runtime& self(void* runtime) {
  return pto::engine::instance_of<Runtime>(runtime);
}

// runtime_table() has all functions. Its submit functions report that the variant does not offer
// them. So replace the functions that the variant offers.
constexpr pto_runtime_api make_table() {
  pto_runtime_api made = pto::engine::runtime_table<Runtime>();
  made.capabilities = PTO_RUNTIME_EXPLICIT_EDGES;
  made.max_args = PTO_MAX_KERNEL_ARGS;
  made.submit = [](void* runtime, const pto_task* task) {
    return self(runtime).graph().add_task(*task);
  };
  // This call exists for programs that also run on other variants. Here every task runs, whether it
  // was published or not.
  made.publish = [](void* runtime, int64_t) { return self(runtime).context().latch.status(); };
  return made;
}

}  // namespace

const pto_runtime_api table = make_table();

}  // namespace pto_runtime_template

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  const char* name = pto_runtime_template::Runtime::variant_name();
  return std::strcmp(variant, name) == 0 ? &pto_runtime_template::table : nullptr;
}
