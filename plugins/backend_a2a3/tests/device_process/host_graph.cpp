#include "device_process/host_graph.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include "check.hpp"

namespace {

Silicon& silicon_of(void* self) {
  return *static_cast<Silicon*>(self);
}

void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) check::fail(__FILE__, __LINE__, dlerror());
  return library;
}

void* reserve(void*, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void release(void*, void* memory, size_t bytes) {
  munmap(memory, bytes);
}

pto_status allocate(void* self, size_t bytes, uint64_t* address) {
  *address = silicon_of(self).allocate(bytes);
  return PTO_OK;
}

pto_status free_memory(void*, uint64_t) {
  return PTO_OK;
}

pto_status copy_in(void* self, uint64_t device, const void* host, size_t bytes) {
  silicon_of(self).copy_in(device, host, bytes);
  return PTO_OK;
}

pto_status copy_out(void* self, void* host, uint64_t device, size_t bytes) {
  silicon_of(self).copy_out(host, device, bytes);
  return PTO_OK;
}

pto_status resolve(void*, uint64_t library, const char* symbol, void** address) {
  *address = dlsym(reinterpret_cast<void*>(library), symbol);
  return *address != nullptr ? PTO_OK : PTO_ERROR_LOAD;
}

}  // namespace

// The host's instance runs no step, so it calls no function for tasks and threads.
pto_platform HostGraph::make_platform(HostGraph& self) {
  pto_platform table{};
  table.abi_version = PTO_ABI_VERSION;
  table.struct_size = sizeof table;
  table.self = &self.session_.silicon();
  table.topology = &self.topology_;
  table.reserve = reserve;
  table.release = release;
  table.allocate = allocate;
  table.free = free_memory;
  table.copy_in = copy_in;
  table.copy_out = copy_out;
  table.resolve = resolve;
  return table;
}

HostGraph::HostGraph(Session& session, const std::string& library) : session_(session) {
  topology_.blocks = session.blocks();
  topology_.cores = 3 * topology_.blocks;
  topology_.schedulers = 1;
  for (uint32_t core = topology_.blocks; core < topology_.cores; ++core) {
    topology_.core_type[core] = PTO_CORE_AIV;
  }
  platform_ = make_platform(*this);
  const auto entry = reinterpret_cast<pto_runtime_entry_fn>(
      dlsym(open_library(library), PTO_RUNTIME_ENTRY_SYMBOL));
  api_ = entry("host_build_graph");
  pto_error error{};
  CHECK_EQUAL(api_->create(&platform_, nullptr, 0, &runtime_, &error), PTO_OK);
}

HostGraph::~HostGraph() {
  api_->destroy(runtime_);
}

std::vector<char> HostGraph::build(const std::string& orchestration,
                                   const std::vector<uint64_t>& args) {
  args_ = args;
  orchestration_ = open_library(orchestration);
  run_ = session_.describe(args_);
  run_.library = reinterpret_cast<uint64_t>(orchestration_);
  CHECK_EQUAL(api_->begin(runtime_, &run_), PTO_OK);
  if (api_->orchestrate(runtime_) != PTO_OK) {
    pto_error error{};
    api_->last_error(runtime_, &error);
    check::fail(__FILE__, __LINE__, error.message);
  }
  std::vector<char> graph(api_->export_graph(runtime_, nullptr, 0));
  CHECK_EQUAL(api_->export_graph(runtime_, graph.data(), graph.size()), graph.size());
  return graph;
}

void HostGraph::finish() {
  CHECK_EQUAL(api_->finalise(runtime_), PTO_OK);
  api_->end(runtime_);
  dlclose(orchestration_);
}
