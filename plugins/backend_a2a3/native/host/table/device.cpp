#include "table/device.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "error.hpp"
#include "pto/host/backend_table.hpp"

namespace pto::a2a3 {

namespace {

pto_status read_file(const std::string& path, std::string* bytes, pto_error* error) {
  std::ifstream file(path, std::ios::binary);
  bytes->assign(std::istreambuf_iterator<char>(file), {});
  if (!bytes->empty()) return PTO_OK;
  return fail(error, PTO_ERROR_LOAD, "the file %s cannot be read or is empty", path.c_str());
}

pto_status read_images(const Options& options, DeviceImages* images, pto_error* error) {
  const std::string start = options.images + "/libpto_a2a3_";
  const bool is_folder = !options.images.empty();
  const auto path = [&](const char* name, const std::string& built) {
    return is_folder ? start + name + ".so" : built;
  };
  if (!is_folder && options.dispatcher.empty()) {
    return fail(error, PTO_ERROR_LOAD,
                "no libraries for the device are known; set a2a3.device_folder to their folder");
  }
  pto_status status = read_file(path("dispatcher", options.dispatcher), &images->dispatcher, error);
  if (status == PTO_OK) status = read_file(path("device", options.device), &images->library, error);
  if (status != PTO_OK) return status;
  return read_file(path("executor", options.executor), &images->executor, error);
}

const char* path_of(const pto_attachment& attachment, const char* kind) {
  for (uint32_t index = 0; index < attachment.num_artefacts; ++index) {
    const pto_artefact& artefact = attachment.artefacts[index];
    if (std::strcmp(artefact.kind, kind) == 0) return artefact.path;
  }
  return nullptr;
}

// Refuses a device that an earlier run has lost.
pto_status enter(CardSession& session, pto_error* error) {
  const auto lock = session.lock();
  return session.enter(error);
}

// Calls the member function of the same name of the host's instance.
template <auto kMember, class Result, class... Arguments>
Result on_host(void* runtime, Arguments... arguments) {
  const HostGraph& host = device_of(runtime).host();
  return (host.api().*kMember)(host.instance(), arguments...);
}

}  // namespace

pto_status CardAccessLog::read(CardMemory& memory, uint64_t address, pto_error* error) {
  pto_a2a3_access_log head = {};
  pto_status status = memory.copy_out(&head, address, sizeof head, error);
  if (status == PTO_OK) bytes_.resize(head.bytes);
  if (status == PTO_OK) status = memory.copy_out(bytes_.data(), address, bytes_.size(), error);
  if (status != PTO_OK) {
    bytes_.clear();
    return status;
  }
  auto* tasks = reinterpret_cast<pto_logged_task*>(bytes_.data() + sizeof head);
  auto* events = reinterpret_cast<pto_logged_event*>(
      reinterpret_cast<pto_tensor_data*>(tasks + head.num_tasks) + head.num_accesses);
  const auto name = [&](const char*& file) {
    if (file != nullptr) file = bytes_.data() + reinterpret_cast<uintptr_t>(file);
  };
  for (uint64_t i = 0; i < head.num_tasks; ++i) name(tasks[i].file);
  for (uint64_t i = 0; i < head.num_events; ++i) name(events[i].file);
  return status;
}

pto_access_log CardAccessLog::content() const {
  if (bytes_.empty()) return {};
  const auto& head = *reinterpret_cast<const pto_a2a3_access_log*>(bytes_.data());
  const auto* tasks = reinterpret_cast<const pto_logged_task*>(&head + 1);
  const auto* accesses = reinterpret_cast<const pto_tensor_data*>(tasks + head.num_tasks);
  const auto* events = reinterpret_cast<const pto_logged_event*>(accesses + head.num_accesses);
  return {tasks, accesses, events, head.num_tasks, head.num_accesses, head.num_events};
}

pto_status CardDevice::open(int32_t number, const Options& options, pto_error* error) {
  DeviceImages images;
  AicpuOptions settings;
  settings.pool_bytes = options.pool_bytes;
  settings.log = log_ = options.log;
  settings.bootstrap = options.bootstrap;
  pto_status status = read_images(options, &images, error);
  if (status == PTO_OK) status = card_.open({number, options.visible, options.limits}, error);
  if (status == PTO_OK) status = aicpu_.open(images, settings, error);
  if (status != PTO_OK) {
    card_.close();
    return status;
  }
  activity_.magic = PTO_ACTIVITY_MAGIC;
  activity_.version = PTO_ACTIVITY_VERSION;
  activity_.device = number;
  return PTO_OK;
}

void CardDevice::close(pto_leak_report& leaks) {
  dump_.end();  // that of a run that has not ended
  leaks = buffers_.describe();
  buffers_.free_all();
  kernels_.close();
  host_.reset();
  aicpu_.close(nullptr);
  card_.close();
}

pto_status CardDevice::load_library(const char* path, uint64_t* library, pto_error* error) {
  if (host_ != nullptr) return host_->libraries().load(path, library, error);
  std::string file;
  const pto_status status = read_file(path, &file, error);
  if (status != PTO_OK) return status;
  return aicpu_.load(PTO_A2A3_ORCHESTRATION, file, nullptr, library, nullptr, error);
}

pto_status CardDevice::unload_library(uint64_t library) {
  return host_ != nullptr ? host_->libraries().unload(library) : aicpu_.unload(library, nullptr);
}

pto_status CardDevice::attach(const pto_attachment* attachment, const pto_option* options,
                              uint32_t num_options, const pto_runtime_api** table, void** runtime,
                              pto_error* error) {
  *runtime = this;  // of the proxy
  const char* path = path_of(*attachment, "runtime");
  if (path == nullptr) {
    return fail(error, PTO_ERROR_LOAD, "runtime %s was not built for the device",
                attachment->variant);
  }
  const std::span all(options, num_options);
  pto_status status = attach_on_device(path, attachment->variant, all, error);
  if (status != PTO_OK) return status;
  fill_table(*attachment);
  if (attachment->api->export_graph != nullptr) {
    status = attach_on_host(attachment->api, all, error);
    if (status != PTO_OK) detach();
  }
  *table = &table_;
  return status;
}

pto_status CardDevice::attach_on_device(const std::string& path, const char* variant,
                                        std::span<const pto_option> options, pto_error* error) {
  std::string file;
  uint64_t handle = 0;
  pto_status status = read_file(path, &file, error);
  if (status == PTO_OK) {
    status = aicpu_.load(PTO_A2A3_VARIANT, file, nullptr, &handle, nullptr, error);
  }
  if (status != PTO_OK) return status;
  status = aicpu_.attach(handle, variant, options, error);
  if (status == PTO_OK) {
    variant_ = handle;
  } else {
    aicpu_.unload(handle, nullptr);
  }
  return status;
}

pto_status CardDevice::attach_on_host(const pto_runtime_api* api,
                                      std::span<const pto_option> options, pto_error* error) {
  host_ = std::make_unique<HostGraph>(api, card_, aicpu_, log_);
  fill_host_calls();
  return host_->create(options, card_.blocks(), error);
}

// Without the calls of the host's instance, the proxy has no submit path: the orchestration runs on
// the device.
void CardDevice::fill_table(const pto_attachment& attachment) {
  const pto_a2a3_status& answer = aicpu_.answer();
  variant_name_ = attachment.variant;
  table_ = {};
  table_.abi_version = PTO_ABI_VERSION;
  table_.struct_size = sizeof table_;
  table_.variant = variant_name_.c_str();
  table_.capabilities = answer.capabilities;
  table_.max_args = answer.max_args;
  table_.max_tasks = answer.max_tasks;
  // The error of a run is that of finish(), which also ends the run.
  table_.last_error = [](void*, pto_error*) -> pto_status { return PTO_OK; };
  table_.statistics = [](void* runtime, pto_statistic* out, uint32_t capacity) {
    return device_of(runtime).statistics(out, capacity);
  };
  table_.explain = [](void* runtime, char* out, size_t capacity) {
    return device_of(runtime).explain(out, capacity);
  };
  if (attachment.api->access_log == nullptr) return;
  table_.access_log = [](void* runtime, pto_access_log* log) {
    *log = device_of(runtime).access_log();
  };
}

// The submit path is that of the host's instance.
void CardDevice::fill_host_calls() {
  using api = pto_runtime_api;
  table_.submit = on_host<&api::submit, int64_t, const pto_task*>;
  table_.submit_tensors = on_host<&api::submit_tensors, int64_t, pto_tensor_task*>;
  table_.add_edge = on_host<&api::add_edge, pto_status, int64_t, int64_t>;
  table_.publish = on_host<&api::publish, pto_status, int64_t>;
  table_.scope_begin = on_host<&api::scope_begin, pto_status, const char*, int32_t>;
  table_.scope_end = on_host<&api::scope_end, pto_status>;
  table_.allocate_cluster = on_host<&api::allocate_cluster, int32_t, const char*, int32_t>;
  table_.free_cluster = on_host<&api::free_cluster, pto_status, int32_t>;
  table_.last_error = on_host<&api::last_error, pto_status, pto_error*>;
  if (host_->api().access_log != nullptr) {
    table_.access_log = on_host<&api::access_log, void, pto_access_log*>;
  }
}

void CardDevice::detach() {
  host_.reset();
  if (variant_ == 0) return;
  if (aicpu_.detach(nullptr) == PTO_OK) aicpu_.unload(variant_, nullptr);
  variant_ = 0;
}

pto_status CardDevice::start(const pto_run* run, pto_error* error) {
  refused_ = PTO_OK;
  explanation_.restart();
  log_of_run_.clear();
  uint32_t blocks = 0;
  pto_status status = enter(card_.session(), error);
  if (status == PTO_OK) status = host::find_blocks(run->config, card_.blocks(), &blocks, error);
  if (status == PTO_OK && host_ != nullptr) status = host_->begin(*run, error);
  if (status != PTO_OK) return status;
  run_ = run;
  if (run->library == 0) return PTO_OK;
  launch(host_ == nullptr ? run->library : 0);
  if (host_ != nullptr || is_running_) return PTO_OK;
  run_ = nullptr;
  if (error != nullptr) *error = refusal_;
  return refused_;
}

void CardDevice::orchestration_done(int32_t result) {
  if (run_ == nullptr || run_->library != 0) return;
  if (host_ != nullptr) host_->api().orchestration_done(host_->instance(), result);
  launch(0);
}

// Passes the run to the device. If its graph has an error or the device refuses it, the run has
// ended. Without an orchestration and an instance on the host, the tasks are in the arguments.
void CardDevice::launch(uint64_t orchestration) {
  std::vector<char> graph;
  if (host_ != nullptr) {
    refused_ = host_->last_error(&refusal_);
    if (refused_ == PTO_OK) graph = host_->take();
  }
  if (refused_ == PTO_OK) refused_ = kernels_.prepare_run(&refusal_);
  const pto_call_config* config = run_->config;
  const bool is_dumped = config != nullptr && config->enable_dump_tensor != PTO_DUMP_OFF;
  if (refused_ == PTO_OK && is_dumped) {
    std::vector<pto_a2a3_range> buffers;
    buffers_.list(buffers);
    if (host_ != nullptr) host_->buffers().list(buffers);
    refused_ = dump_.begin(*config, std::move(buffers), &refusal_);
  }
  if (refused_ == PTO_OK) {
    refused_ = aicpu_.start(*run_, orchestration, graph, dump_.address(), &refusal_);
  }
  is_running_ = refused_ == PTO_OK;
  if (!is_running_) dump_.end();
}

pto_status CardDevice::wait(int64_t timeout_ns) {
  return is_running_ ? aicpu_.wait(timeout_ns) : PTO_OK;
}

pto_status CardDevice::finish(pto_run_report* report, pto_error* error) {
  pto_status status = refused_ == PTO_OK ? aicpu_.finish(error) : refused_;
  if (refused_ != PTO_OK && error != nullptr) *error = refusal_;
  is_running_ = false;
  run_ = nullptr;
  dump_.end();
  const pto_a2a3_status& answer = aicpu_.answer();
  if (report != nullptr) *report = refused_ == PTO_OK ? answer.report : pto_run_report{};
  const uint32_t count = std::min<uint32_t>(answer.num_statistics, PTO_A2A3_STATISTICS);
  statistics_.assign(answer.statistics, answer.statistics + count);
  explanation_.finish(
      {answer.explanation, std::min<size_t>(answer.explanation_bytes, sizeof answer.explanation)});
  if (refused_ == PTO_OK && answer.address != 0 && card_.is_usable()) {
    const pto_status read =
        log_of_run_.read(card_.memory(), answer.address, status == PTO_OK ? error : nullptr);
    if (status == PTO_OK) status = read;
  }
  if (host_ == nullptr) return status;
  const pto_status finished = host_->finish(status == PTO_OK, error);
  if (report != nullptr) host_->describe(*report);
  return status == PTO_OK ? finished : status;
}

void CardDevice::abort(const pto_error* cause, int32_t is_lost) {
  if (is_running_) return aicpu_.mailbox().abort(cause, is_lost != 0);
  if (run_ == nullptr) return;
  if (host_ != nullptr) return host_->api().abort(host_->instance(), cause);
  refused_ = fail(&refusal_, PTO_ERROR_ABORTED, "the run was aborted before it started");
  if (cause == nullptr || cause->status == PTO_OK) return;
  refusal_ = *cause;
  refused_ = cause->status;
}

uint32_t CardDevice::statistics(pto_statistic* out, uint32_t capacity) const {
  const auto count = static_cast<uint32_t>(statistics_.size());
  std::copy_n(statistics_.begin(), std::min(count, capacity), out);
  return count;
}

size_t CardDevice::explain(char* out, size_t capacity) {
  std::string text;
  if (!aicpu_.mailbox().explain(text)) {
    text = explanation_.text();
  } else if (!text.empty()) {
    explanation_.keep(text);
  }
  const size_t count = std::min(text.size(), capacity);
  std::memcpy(out, text.data(), count);
  return count;
}

}  // namespace pto::a2a3
