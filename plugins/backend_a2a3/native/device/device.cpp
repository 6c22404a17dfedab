#include "device/device.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "device/error.hpp"
#include "device/platform.hpp"
#include "device/texts.hpp"
#include "pto/engine/run_image.hpp"

namespace pto::a2a3 {
namespace {

constexpr int32_t kDefaultThreads = 3;
constexpr uint32_t kMaxOptions = 64;
// The threads of a launch start within microseconds; one that never starts costs a run this much.
constexpr uint64_t kPatienceNs = 1'000'000;

pto_status check(const pto_a2a3_device& config, pto_error& error) {
  if (config.magic != PTO_A2A3_MAGIC || config.version != PTO_A2A3_VERSION) {
    return fail(error, PTO_ERROR_LOAD, "the host describes the device in version ", config.version,
                ", and the device library has version ", PTO_A2A3_VERSION,
                "; install one version of both");
  }
  if (config.blocks < 1 || config.blocks > PTO_MAX_BLOCKS ||
      config.num_cpus > PTO_A2A3_MAX_AICPU_CPUS || config.cores % PTO_A2A3_LINE != 0) {
    return fail(error, PTO_ERROR_INTERNAL, "the host describes the device wrongly: ", config.blocks,
                " blocks, ", config.num_cpus, " processors");
  }
  return PTO_OK;
}

// The distinct names of source files in a log, and their offsets. There are few.
class FileNames {
 public:
  explicit FileNames(uint64_t begin) : end_(begin) {}

  // Returns false if memory is exhausted.
  bool add(const char* file) {
    if (file == nullptr || find(file) != nullptr) return true;
    if (!names_.insert(names_.count(), {file, end_})) return false;
    end_ += std::strlen(file) + 1;
    return true;
  }
  uint64_t end() const { return end_; }
  const char* placed(const char* file) const {
    return file == nullptr ? nullptr : reinterpret_cast<const char*>(find(file)->at);
  }
  void write(uint64_t start) const {
    for (uint32_t i = 0; i < names_.count(); ++i) {
      std::strcpy(reinterpret_cast<char*>(start + names_[i].at), names_[i].file);
    }
  }

 private:
  struct Name {
    const char* file;
    uint64_t at;
  };

  const Name* find(const char* file) const {
    for (uint32_t i = 0; i < names_.count(); ++i) {
      if (names_[i].file == file) return &names_[i];
    }
    return nullptr;
  }

  Array<Name> names_;
  uint64_t end_;
};

template <class Row>
void copy_rows(Row* to, const Row* from, uint64_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof(Row));
}

// Writes the access log into memory of runs, where it stays until the next command.
pto_status write_log(const pto_access_log& log, Pool& pool, uint64_t& address, pto_error& error) {
  FileNames names(sizeof(pto_a2a3_access_log) + log.num_tasks * sizeof *log.tasks +
                  log.num_accesses * sizeof *log.accesses + log.num_events * sizeof *log.events);
  bool has_memory = true;
  for (uint64_t i = 0; i < log.num_tasks; ++i) has_memory &= names.add(log.tasks[i].file);
  for (uint64_t i = 0; i < log.num_events; ++i) has_memory &= names.add(log.events[i].file);
  uint64_t start = 0;
  if (!has_memory || pool.allocate(names.end(), Owner::run, &start) != PTO_OK) {
    return fail(error, PTO_ERROR_MEMORY, "the device has no ", names.end(),
                " bytes for the access log of the run, which graphs, checks and bisections need, "
                "and dumps for the numbers of tasks; raise a2a3.pool_mib");
  }
  const pto_a2a3_access_log head = {names.end(), log.num_tasks, log.num_accesses, log.num_events};
  auto* tasks = reinterpret_cast<pto_logged_task*>(start + sizeof head);
  auto* accesses = reinterpret_cast<pto_tensor_data*>(tasks + log.num_tasks);
  auto* events = reinterpret_cast<pto_logged_event*>(accesses + log.num_accesses);
  std::memcpy(reinterpret_cast<void*>(start), &head, sizeof head);
  copy_rows(tasks, log.tasks, log.num_tasks);
  copy_rows(accesses, log.accesses, log.num_accesses);
  copy_rows(events, log.events, log.num_events);
  for (uint64_t i = 0; i < log.num_tasks; ++i) tasks[i].file = names.placed(log.tasks[i].file);
  for (uint64_t i = 0; i < log.num_events; ++i) events[i].file = names.placed(log.events[i].file);
  names.write(start);
  Aicpu::clean(reinterpret_cast<const void*>(start), names.end());
  Aicpu::order_stores();
  Aicpu::invalidate(reinterpret_cast<const void*>(start), names.end());  // the pool uses it again
  address = start;
  return PTO_OK;
}

}  // namespace

void clear(pto_a2a3_status& answer) {
  const size_t head = offsetof(pto_a2a3_status, statistics) - offsetof(pto_a2a3_status, command);
  std::memset(static_cast<void*>(&answer.command), 0, head);
  answer.explanation[0] = '\0';
}

DeviceProgram* DeviceProgram::create(uint64_t description, uint64_t bytes, pto_error& error) {
  if (bytes < sizeof(pto_a2a3_device)) {
    fail(error, PTO_ERROR_INTERNAL, "the description of the device has ", bytes, " bytes");
    return nullptr;
  }
  const auto& config = *from_host<pto_a2a3_device>(description);
  if (check(config, error) != PTO_OK) return nullptr;
  void* memory = mmap(nullptr, sizeof(DeviceProgram), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail(error, PTO_ERROR_MEMORY, "the AICPU has no memory for a device");
    return nullptr;
  }
  auto* device = new (memory) DeviceProgram(config);
  device->pool_.open(config.pool, config.pool_bytes);
  device->loader_.open(config.device_id, device->config_.directory);
  device->log_.open(config.log, config.log_level);
  device->run_.open(device->config_, device->log_);
  device->platform_ = make_platform(*device);
  device->platform_.planning = (config.flags & PTO_A2A3_PLANNING) != 0 && can_plan();
  return device;
}

void DeviceProgram::destroy(DeviceProgram* device) {
  device->~DeviceProgram();
  munmap(static_cast<void*>(device), sizeof(DeviceProgram));
}

DeviceProgram::~DeviceProgram() {
  if (api_ != nullptr) api_->destroy(runtime_);
}

pto_status DeviceProgram::load(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  const pto_a2a3_library library = *from_host<pto_a2a3_library>(launch.input);
  const pto_status status = loader_.load(library, &answer.handle, &answer.address, answer.error);
  if (status != PTO_OK || library.kind != PTO_A2A3_KERNEL) return status;
  const bool prints = listen_to_texts(loader_.find(answer.handle, "pto_listen_to_texts"));
  answer.capabilities = prints ? PTO_A2A3_PRINTS : 0;
  return PTO_OK;
}

pto_status DeviceProgram::unload(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  return loader_.unload(launch.handle, answer.error);
}

pto_status DeviceProgram::attach(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  pto_error& error = answer.error;
  const auto* input = from_host<pto_a2a3_attach>(launch.input, launch.input_bytes);
  if (api_ != nullptr) {
    return fail(error, PTO_ERROR_USAGE, "the device has the runtime ", api_->variant,
                "; detach it first");
  }
  void* symbol = loader_.find(input->library, PTO_RUNTIME_ENTRY_SYMBOL);
  if (symbol == nullptr) {
    return fail(error, PTO_ERROR_LOAD, "the library of ", input->variant, " does not export ",
                PTO_RUNTIME_ENTRY_SYMBOL);
  }
  const pto_runtime_api* api = reinterpret_cast<pto_runtime_entry_fn>(symbol)(input->variant);
  if (api == nullptr || api->abi_version != PTO_ABI_VERSION) {
    return fail(error, PTO_ERROR_LOAD, "the library on the device has no runtime ", input->variant,
                " of version ", PTO_ABI_VERSION, "; install matching versions");
  }
  pto_option options[kMaxOptions];
  const char* text = reinterpret_cast<const char*>(input + 1);
  if (input->num_options > kMaxOptions) {
    return fail(error, PTO_ERROR_CAPACITY, input->num_options, " options; the device takes ",
                kMaxOptions);
  }
  for (uint32_t i = 0; i < input->num_options; ++i) {
    options[i].key = text;
    text += std::strlen(text) + 1;
    options[i].value = text;
    text += std::strlen(text) + 1;
  }
  has_cause_ = false;
  run_.attach(api, nullptr);
  run_.set_topology(engine::make_topology(config_.blocks, 1));
  const pto_status status = api->create(&platform_, options, input->num_options, &runtime_, &error);
  if (status != PTO_OK) {
    pool_.free_all(Owner::variant);
    return status;
  }
  api_ = api;
  run_.attach(api, runtime_);
  answer.capabilities = api->capabilities;
  answer.max_args = api->max_args;
  answer.max_tasks = api->max_tasks;
  return PTO_OK;
}

pto_status DeviceProgram::detach(pto_a2a3_status& answer) {
  if (api_ == nullptr) return fail(answer.error, PTO_ERROR_USAGE, "the device has no runtime");
  api_->destroy(runtime_);
  api_ = nullptr;
  runtime_ = nullptr;
  pool_.free_all(Owner::variant);
  return PTO_OK;
}

bool DeviceProgram::run(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  if (!gate_.enter(launch.sequence)) {
    follow(launch.sequence);
    return false;
  }
  clear(answer);
  answer.status = lead(launch, answer);
  return true;
}

void DeviceProgram::follow(uint64_t sequence) {
  if (!gate_.wait_until_open(sequence)) return;
  const int32_t role = gate_.wait_for_role(sequence, gate_.report(sched_getcpu()));
  if (role == Gate::kNoRole) return;
  while (entered_.load(std::memory_order_acquire) != sequence) {
    const uint32_t seen = Aicpu::changes();
    if (given_up_.load(std::memory_order_acquire) == sequence) return;
    if (entered_.load(std::memory_order_acquire) != sequence) Aicpu::rest(seen);
  }
  run_.take_part(static_cast<uint32_t>(role));
  inside_.fetch_sub(1, std::memory_order_acq_rel);
  Aicpu::changed();
}

pto_status DeviceProgram::lead(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  pto_error& error = answer.error;
  CardRunShape shape{};
  int32_t role = Gate::kNoRole;
  pto_status status = read_run(launch, shape, error);
  if (status == PTO_OK) {
    status = gather(launch, shape, role, error);
  } else {
    gate_.refuse(launch.sequence);
  }
  if (status == PTO_OK) status = run_.cores().start(shape.topology, launch.core_launch, error);
  const bool has_begun =
      status == PTO_OK && (status = begin(launch, shape.has_orchestrator, error)) == PTO_OK;
  if (has_begun) {
    run_.cores().dump().begin(launch.dump, pool_);
    run_.set_phase(PTO_A2A3_RUNNING);
    drive(launch.sequence, role);
    status = outcome(error);
  } else {
    give_up(launch.sequence);
  }
  status = stop_cores(launch, status, error);
  if (has_begun) {
    describe(answer);
    const bool has_log = run_image_.config != nullptr && run_image_.config->enable_dep_gen != 0;
    if (has_log && shape.has_orchestrator && api_->access_log != nullptr) {
      pto_access_log log{};
      api_->access_log(runtime_, &log);
      pto_error no_log{};
      if (write_log(log, pool_, answer.address, no_log) != PTO_OK) {
        if (status == PTO_OK && run_.cores().dump().needs_log()) {
          status = no_log.status;
          error = no_log;
        } else {
          log_.write(PTO_LOG_WARN, no_log.message);
        }
      }
    }
    run_.cores().dump().end();
    api_->end(runtime_);
  }
  pool_.free_all(Owner::run);
  run_.set_phase(PTO_A2A3_RESTING);
  return status;
}

// Waits for the AICPU threads of the launch, and gives them their roles.
pto_status DeviceProgram::gather(const pto_a2a3_launch& launch, const CardRunShape& shape,
                                 int32_t& role, pto_error& error) {
  run_.prepare(shape, launch.sequence);
  run_.set_phase(PTO_A2A3_STARTING);
  gate_.open(launch.sequence);
  const uint32_t number = gate_.report(sched_getcpu());
  const uint32_t reported =
      gate_.decide(launch.sequence, shape.threads(), launch.threads, config_.cpus, config_.num_cpus,
                   kPatienceNs, uint64_t{config_.gate_timeout_ms} * 1'000'000);
  if (reported < shape.threads()) {
    return fail(error, PTO_ERROR_LOST, "the run needs ", shape.threads(), " AICPU threads, but ",
                reported, " of ", launch.threads, " have started within ", config_.gate_timeout_ms,
                " ms; reset the device");
  }
  role = gate_.wait_for_role(launch.sequence, number);
  return PTO_OK;
}

// The threads that have a role must not enter the run.
void DeviceProgram::give_up(uint64_t sequence) {
  run_.end_run(false);
  given_up_.store(sequence, std::memory_order_release);
  Aicpu::changed();
}

// The cores of the launch leave also if the run has not begun. Returns the status of the run.
pto_status DeviceProgram::stop_cores(const pto_a2a3_launch& launch, pto_status status,
                                     pto_error& error) {
  if (is_lost_) return status;
  pto_error lost;
  const auto is_abandoned = [this] {
    run_.tend(false);
    return run_.is_abandoned();
  };
  run_.set_phase(PTO_A2A3_LEAVING);
  if (run_.cores().stop(launch.core_launch, is_abandoned, lost) != PTO_OK) {
    if (status != PTO_ERROR_LOST) error = lost;
    status = PTO_ERROR_LOST;
  }
  if (status == PTO_ERROR_LOST) is_lost_ = true;
  return status;
}

pto_status DeviceProgram::read_run(const pto_a2a3_launch& launch, CardRunShape& shape,
                                   pto_error& error) {
  if (is_lost_) {
    return fail(error, PTO_ERROR_LOST, "an earlier run has lost the device; reset the device");
  }
  if (api_ == nullptr) {
    return fail(error, PTO_ERROR_USAGE, "the device has no runtime; attach a runtime first");
  }
  const void* image = from_host<char>(launch.input, launch.input_bytes);
  if (!engine::read_run_image(image, launch.input_bytes, launch.handle, run_image_)) {
    return fail(error, PTO_ERROR_INTERNAL, "the ", launch.input_bytes,
                " bytes that describe the run are no image of a run");
  }
  // Without an orchestration and a graph, all tasks are in the arguments, as for the kit's probe.
  const bool has_no_graph = (api_->capabilities & PTO_RUNTIME_HOST_ORCHESTRATION) != 0 &&
                            api_->import_graph == nullptr && run_image_.library == 0;
  shape.has_orchestrator = launch.graph == 0 && !has_no_graph;
  if (shape.has_orchestrator && run_image_.library == 0) {
    return fail(error, PTO_ERROR_UNSUPPORTED, "the device cannot run ", api_->variant,
                " without the library of an orchestration; use a C++ orchestration");
  }
  if (launch.graph != 0 && api_->import_graph == nullptr) {
    return fail(error, PTO_ERROR_UNSUPPORTED, "runtime ", api_->variant,
                " cannot run a graph that the host has built");
  }
  const pto_status status = shape_of(run_image_.config, shape, error);
  if (status != PTO_OK || shape.threads() <= launch.threads) return status;
  return fail(error, PTO_ERROR_USAGE, "aicpu_thread_num is ", shape.threads(),
              ", but the device has ", launch.threads, " AICPU threads; use 1 to ", launch.threads);
}

pto_status DeviceProgram::shape_of(const pto_call_config* config, CardRunShape& shape,
                                   pto_error& error) const {
  const int32_t asked = config != nullptr ? config->block_dim : 0;
  const int32_t threads = config != nullptr ? config->aicpu_thread_num : kDefaultThreads;
  if (asked < 0 || asked > static_cast<int32_t>(config_.blocks)) {
    return fail(error, PTO_ERROR_USAGE, "block_dim is ", asked, ", but this device has ",
                config_.blocks, " blocks; use 0 (all blocks) to ", config_.blocks);
  }
  if (threads < 1 || threads > PTO_MAX_AICPU_THREADS) {
    return fail(error, PTO_ERROR_USAGE, "aicpu_thread_num is ", threads, "; use 1 to ",
                PTO_MAX_AICPU_THREADS);
  }
  const auto count = static_cast<uint32_t>(threads);
  shape.shares_thread = shape.has_orchestrator && count == 1;
  const bool has_own_thread = shape.has_orchestrator && count > 1;
  shape.topology = engine::make_topology(asked == 0 ? config_.blocks : static_cast<uint32_t>(asked),
                                         has_own_thread ? count - 1 : count);
  return PTO_OK;
}

pto_status DeviceProgram::begin(const pto_a2a3_launch& launch, bool has_orchestrator,
                                pto_error& error) {
  has_cause_ = false;
  pool_.restart_peak();
  pool_.copies() = {};
  pto_status status = api_->begin(runtime_, &run_image_);
  if (status == PTO_OK && launch.graph != 0) {
    const void* graph = from_host<char>(launch.graph, launch.graph_bytes);
    status = api_->import_graph(runtime_, graph, launch.graph_bytes);
  }
  if (status == PTO_OK && !has_orchestrator) api_->orchestration_done(runtime_, 0);
  if (status == PTO_OK) return PTO_OK;
  latched(status, error);
  api_->end(runtime_);
  return status;
}

// Lets the other threads in, takes part, and returns when all have left.
void DeviceProgram::drive(uint64_t sequence, int32_t role) {
  const bool has_role = role != Gate::kNoRole;
  inside_.store(run_.threads() - (has_role ? 1 : 0), std::memory_order_relaxed);
  entered_.store(sequence, std::memory_order_release);
  Aicpu::changed();
  if (has_role) run_.take_part(static_cast<uint32_t>(role));
  while (inside_.load(std::memory_order_acquire) != 0) {
    const uint32_t seen = Aicpu::changes();
    run_.tend(false);
    if (inside_.load(std::memory_order_acquire) != 0) Aicpu::rest(seen);
  }
}

pto_status DeviceProgram::outcome(pto_error& error) {
  const pto_status status = api_->last_error(runtime_, nullptr);
  if (status != PTO_OK) return latched(status, error);
  if (!run_.has_succeeded()) {
    return fail(error, PTO_ERROR_INTERNAL, "runtime ", api_->variant, " stopped without an error");
  }
  const pto_status finalised = api_->finalise(runtime_);
  return finalised == PTO_OK ? PTO_OK : latched(finalised, error);
}

// Copies the first error of the variant, whose message names the operation, and adds the reason of
// the platform.
pto_status DeviceProgram::latched(pto_status status, pto_error& error) {
  if (api_->last_error(runtime_, &error) == PTO_OK) {
    return fail(error, status, "runtime ", api_->variant, " failed with status ", status,
                " and no message");
  }
  if (!has_cause_.load(std::memory_order_acquire) || cause_.status != error.status) return status;
  const pto_error first = error;
  engine::Text(error.message, sizeof error.message)
      .add(static_cast<const char*>(first.message), " (", static_cast<const char*>(cause_.message),
           ")");
  if (error.limit == 0) error.limit = cause_.limit;
  return status;
}

void DeviceProgram::note_cause(const pto_error& cause) {
  if (has_cause_.load(std::memory_order_relaxed)) return;
  cause_ = cause;
  has_cause_.store(true, std::memory_order_release);
}

void DeviceProgram::describe(pto_a2a3_status& answer) {
  run_.fill(answer.report);
  answer.report.peak_bytes = pool_.peak();
  answer.report.copies_in = pool_.copies().copies_in;
  answer.report.copies_out = pool_.copies().copies_out;
  answer.report.bytes_in = pool_.copies().bytes_in;
  answer.report.bytes_out = pool_.copies().bytes_out;
  const uint32_t count = api_->statistics(runtime_, answer.statistics, PTO_A2A3_STATISTICS);
  answer.num_statistics = count < PTO_A2A3_STATISTICS ? count : PTO_A2A3_STATISTICS;
  answer.explanation_bytes =
      static_cast<uint32_t>(api_->explain(runtime_, answer.explanation, sizeof answer.explanation));
}

}  // namespace pto::a2a3
