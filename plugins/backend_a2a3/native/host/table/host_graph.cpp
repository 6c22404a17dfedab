#include "table/host_graph.hpp"

#include <string>

#include "error.hpp"
#include "pto/engine/core_mask.hpp"
#include "pto/host/backend_table.hpp"
#include "pto/host/runtime_log.hpp"

namespace pto::a2a3 {

namespace {

constexpr uint64_t kAlignment = 1024;

}  // namespace

pto_status Buffers::allocate(size_t bytes, uint64_t* address, pto_error* error) {
  Buffer buffer = {0, bytes};
  const pto_status status = card_.memory().allocate(bytes + kAlignment, &buffer.base, error);
  if (status != PTO_OK) return status;
  *address = (buffer.base + kAlignment - 1) / kAlignment * kAlignment;
  buffers_[*address] = buffer;
  return PTO_OK;
}

pto_status Buffers::free(uint64_t address, pto_error* error) {
  const auto found = buffers_.find(address);
  if (found == buffers_.end()) {
    return fail(error, PTO_ERROR_ADDRESS, "no buffer of the device starts at 0x%llx",
                static_cast<unsigned long long>(address));
  }
  const pto_status status = card_.memory().free(found->second.base, error);
  if (status == PTO_OK) buffers_.erase(found);
  return status;
}

void Buffers::free_all() {
  for (const auto& [address, buffer] : buffers_) {
    if (card_.is_usable()) card_.memory().free(buffer.base, nullptr);
  }
  buffers_.clear();
}

pto_leak_report Buffers::describe() const {
  pto_leak_report report = {};
  for (const auto& [address, buffer] : buffers_) {
    if (report.buffers++ == 0) {
      report.first_address = address;
      report.first_bytes = buffer.bytes;
    }
    report.bytes += buffer.bytes;
  }
  return report;
}

void Buffers::list(std::vector<pto_a2a3_range>& ranges) const {
  for (const auto& [address, buffer] : buffers_) {
    ranges.push_back({address, address + buffer.bytes});
  }
}

HostGraph::HostGraph(const pto_runtime_api* api, Card& card, AicpuDevice& aicpu,
                     const LogSettings& log)
    : api_(api), card_(card), aicpu_(aicpu), log_(log), buffers_(card) {}

HostGraph::~HostGraph() {
  if (instance_ != nullptr) api_->destroy(instance_);
}

pto_platform HostGraph::make_platform() {
  pto_platform table = host::host_platform(this, topology_);
  table.planning = 0;
  table.allocate = [](void* self, size_t bytes, uint64_t* address) {
    return static_cast<HostGraph*>(self)->buffers_.allocate(bytes, address, nullptr);
  };
  table.free = [](void* self, uint64_t address) {
    return static_cast<HostGraph*>(self)->buffers_.free(address, nullptr);
  };
  table.copy_in = [](void* self, uint64_t device, const void* host, size_t bytes) {
    return static_cast<HostGraph*>(self)->copy_in(device, host, bytes);
  };
  table.copy_out = [](void* self, void* host, uint64_t device, size_t bytes) {
    return static_cast<HostGraph*>(self)->copy_out(host, device, bytes);
  };
  table.upload_kernel = [](void* self, int32_t, const void* bytes, size_t length,
                           uint64_t* address) {
    return static_cast<HostGraph*>(self)->upload_kernel(bytes, length, address);
  };
  table.resolve = [](void* self, uint64_t library, const char* symbol, void** address) {
    return static_cast<HostGraph*>(self)->libraries_.resolve(library, symbol, address);
  };
  table.log = [](void* self, int32_t level, const char* message) {
    const LogSettings& log = static_cast<HostGraph*>(self)->log_;
    const bool is_shown = level >= PTO_LOG_ALWAYS && level <= log.level;
    if (is_shown) host::write_log(level, message, log.is_json);
  };
  return table;
}

pto_status HostGraph::create(std::span<const pto_option> options, uint32_t blocks,
                             pto_error* error) {
  topology_ = engine::make_topology(blocks, 1);
  platform_ = make_platform();
  return api_->create(&platform_, options.data(), static_cast<uint32_t>(options.size()), &instance_,
                      error);
}

pto_status HostGraph::begin(const pto_run& run, pto_error* error) {
  run_ = &run;
  bytes_in_ = bytes_out_ = copies_in_ = copies_out_ = 0;
  pto_status status = api_->begin(instance_, &run);
  if (status != PTO_OK) {
    last_error(error);
    api_->end(instance_);
    return status;
  }
  if (run.library != 0) api_->orchestrate(instance_);
  return PTO_OK;
}

std::vector<char> HostGraph::take() {
  std::vector<char> graph(api_->export_graph(instance_, nullptr, 0));
  api_->export_graph(instance_, graph.data(), graph.size());
  return graph;
}

pto_status HostGraph::finish(bool has_succeeded, pto_error* error) {
  pto_status status = PTO_OK;
  if (has_succeeded) {
    status = api_->finalise(instance_);
    if (status != PTO_OK) last_error(error);
  }
  api_->end(instance_);
  buffers_.free_all();
  for (const uint64_t kernel : kernels_) {
    if (card_.is_usable()) aicpu_.unload(kernel, nullptr);
  }
  kernels_.clear();
  run_ = nullptr;
  return status;
}

void HostGraph::describe(pto_run_report& report) const {
  report.bytes_in += bytes_in_;
  report.bytes_out += bytes_out_;
  report.copies_in += copies_in_;
  report.copies_out += copies_out_;
}

pto_status HostGraph::copy_in(uint64_t address, const void* host, size_t bytes) {
  bytes_in_ += bytes;
  ++copies_in_;
  return card_.memory().copy_in(address, host, bytes, nullptr);
}

pto_status HostGraph::copy_out(void* host, uint64_t address, size_t bytes) {
  bytes_out_ += bytes;
  ++copies_out_;
  const pto_status status = card_.memory().copy_out(host, address, bytes, nullptr);
  if (run_->attend != nullptr) run_->attend(run_->attend_context);
  return status;
}

pto_status HostGraph::upload_kernel(const void* bytes, size_t length, uint64_t* address) {
  const std::string file(static_cast<const char*>(bytes), length);
  uint64_t handle = 0;
  const pto_status status = aicpu_.load(PTO_A2A3_KERNEL, file, nullptr, &handle, address, nullptr);
  if (status == PTO_OK) kernels_.push_back(handle);
  return status;
}

}  // namespace pto::a2a3
