#include "device.hpp"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "activity.hpp"
#include "engine/pool.hpp"
#include "engine/stepper.hpp"
#include "error.hpp"
#include "pto/host/runtime_log.hpp"
#include "table/platform_table.hpp"
#include "waiting.hpp"

namespace pto::sim {

SimDevice::SimDevice(int32_t id, const Options& options)
    : id_(id),
      options_(options),
      process_(getpid()),
      memory_(options.check, options.gaps),
      dump_(memory_),
      cores_(memory_, tracer_, dump_, id, options.log_json, options.timing),
      run_(cores_, tracer_, options.mode == Mode::deterministic) {}

SimDevice::~SimDevice() = default;

pto_status SimDevice::open(pto_error* error) {
  pto_status status = memory_.open(options_.memory_bytes, error);
  if (status != PTO_OK) return status;
  status = cores_.open(error);
  if (status != PTO_OK) return status;
  const bool threads = options_.mode == Mode::threads;
  tracer_.table() = make_platform(*this, !threads, options_.timing);
  const uint32_t workers = threads ? options_.workers : 1;
  tracer_.open(workers);
  const uint32_t slots = workers + 3 * options_.blocks;
  status = activity_.open(options_.activity_fd, id_, slots, error);
  if (status != PTO_OK) return status;
  install_crash_handler();
  if (threads) {
    engine_ = std::make_unique<Pool>(run_, activity_, options_.workers, id_);
  } else {
    engine_ = std::make_unique<Stepper>(run_, activity_, options_.seed, id_);
  }
  return PTO_OK;
}

bool SimDevice::stop() {
  if (run_.running()) {
    pto_error closing;
    fail(&closing, PTO_ERROR_ABORTED, "device %d was closed during a run", id_);
    abort(&closing, 0);
  }
  if (!lost_.load() && run_.phase() != Phase::idle) {
    while (!engine_->wait(-1)) {
    }
    forget_run();
  }
  if (engine_->stuck()) {
    engine_->detach_threads();
    return false;
  }
  engine_.reset();
  detach();
  return true;
}

bool SimDevice::is_of_another_process() const noexcept {
  return getpid() != process_;
}

pto_status SimDevice::usable(pto_error* error) const {
  if (lost_.load(std::memory_order_acquire)) {
    return fail(error, PTO_ERROR_LOST,
                "device %d is lost: a kernel did not return; close it and open it again", id_);
  }
  if (!is_of_another_process()) return PTO_OK;
  return fail(
      error, PTO_ERROR_USAGE,
      "device %d was opened by process %d, before a fork; open a device in this process (%d)", id_,
      static_cast<int>(process_), static_cast<int>(getpid()));
}

pto_status SimDevice::attach(const pto_attachment* attachment, const pto_option* options,
                             uint32_t num_options, const pto_runtime_api** table, void** runtime,
                             pto_error* error) {
  const pto_runtime_api* api = *table = attachment->api;  // the variant runs in this process
  if (api_ != nullptr) {
    return fail(error, PTO_ERROR_USAGE, "device %d has the runtime %s; detach it first", id_,
                api_->variant);
  }
  if (api->abi_version != PTO_ABI_VERSION) {
    return fail(error, PTO_ERROR_USAGE,
                "runtime %s was built for version %u of the native ABI, the simulator for %u; "
                "install matching versions",
                api->variant, api->abi_version, PTO_ABI_VERSION);
  }
  run_.attach(api, nullptr, make_topology(options_.blocks, 1));
  const pto_status status = api->create(&tracer_.table(), options, num_options, &runtime_, error);
  if (status != PTO_OK) {
    memory_.end_runtime();
    return status;
  }
  api_ = api;
  activity_.set_runtime(api->variant, api->capabilities);
  run_.attach(api, runtime_, run_.topology());
  *runtime = runtime_;
  return PTO_OK;
}

void SimDevice::detach() {
  if (api_ == nullptr || (engine_ != nullptr && engine_->stuck())) return;
  api_->destroy(runtime_);
  memory_.end_runtime();
  api_ = nullptr;
  runtime_ = nullptr;
}

namespace {

// Warns after a run if threads had no events, or events no values; each once.
void explain_counts(const Tracer& tracer, const Options& options) {
  const uint32_t idle = tracer.idle_counters();
  if (idle == 0 && !tracer.lacks_files()) return;
  static std::atomic<bool> is_explained[2];
  const auto warn = [&](int which, bool is_true, const std::string& text) {
    if (!is_true || options.log_level < PTO_LOG_WARN || is_explained[which].exchange(true)) return;
    host::write_log(PTO_LOG_WARN, text.c_str(), options.log_json);
  };
  warn(0, tracer.lacks_files(),
       "some threads could not open their counters (EMFILE, Too many open files), so the trace "
       "lacks values; raise the limit of open files (ulimit -n), or set fewer sim.workers");
  warn(1, idle != 0,
       "the counters " + ThreadCounters::names(idle) +
           " have no values, because the system did not count them during a whole kernel; other "
           "programs may use the counters of the processor");
}

// Warns of the counters that this process does not have, once.
void explain_counters(const Options& options) {
  static std::atomic<bool> is_explained{false};
  if (is_explained.exchange(true) || options.log_level < PTO_LOG_WARN) return;
  const std::string missing = options.mode == Mode::threads ? ThreadCounters::explain_missing()
                                                            : "a deterministic run has no counters";
  if (!missing.empty()) host::write_log(PTO_LOG_WARN, missing.c_str(), options.log_json);
}

}  // namespace

pto_status SimDevice::start(const pto_run* run, pto_error* error) {
  if (api_ == nullptr) {
    return fail(error, PTO_ERROR_USAGE, "device %d has no runtime; attach a runtime first", id_);
  }
  if (run_.phase() != Phase::idle) {
    return fail(error, PTO_ERROR_USAGE, "device %d is in a run; finish the run first", id_);
  }
  SimRunShape shape;
  pto_status status = run_shape(run->config, api_->capabilities, options_.blocks, shape, error);
  if (status == PTO_OK) status = dump_.begin(run->config, error);
  if (status != PTO_OK) return status;
  graph_ = *run;
  status = begin(shape, error);
  if (status == PTO_OK) engine_->start(graph_.library != 0);
  return status;
}

pto_status SimDevice::begin(const SimRunShape& shape, pto_error* error) {
  memory_.begin_run();
  const bool counts = graph_.config != nullptr && graph_.config->enable_pmu != 0;
  if (counts) explain_counters(options_);
  tracer_.set_trace(graph_.trace, counts);
  cores_.set_measurement(graph_.measurement, options_.mode == Mode::deterministic);
  run_.prepare(shape, graph_.library != 0);
  activity_.set_blocks(run_.topology().blocks);
  run_.set_attendant(graph_.library == 0 ? graph_.attend : nullptr, graph_.attend_context);
  clear(cause_);
  clear(platform_cause_);
  const pto_status status = api_->begin(runtime_, &graph_);
  if (status == PTO_OK) return PTO_OK;
  latched(status, error);
  forget_run();
  return status;
}

void SimDevice::orchestration_done(int32_t result) {
  engine_->orchestration_done(result);
}

pto_status SimDevice::wait(int64_t timeout_ns) {
  if (lost_.load(std::memory_order_acquire) || run_.phase() == Phase::idle) return PTO_OK;
  return engine_->wait(timeout_ns) ? PTO_OK : PTO_PENDING;
}

pto_status SimDevice::finish(pto_run_report* report, pto_error* error) {
  if (run_.phase() != Phase::over) {
    return fail(error, PTO_ERROR_USAGE, "device %d has no run that is over; call wait() first",
                id_);
  }
  pto_status status = outcome(error);
  const pto_status zones =
      memory_.checking() ? memory_.check_all(status == PTO_OK ? error : nullptr) : PTO_OK;
  if (status == PTO_OK) status = zones;
  if (status == PTO_OK) {
    set_finishing(true);
    status = api_->finalise(runtime_);
    set_finishing(false);
    if (status != PTO_OK) latched(status, error);
  }
  if (report != nullptr) fill_report(*report);
  tracer_.finish(graph_.trace);
  explain_counts(tracer_, options_);
  forget_run();
  return status;
}

void SimDevice::set_finishing(bool finishing) {
  const std::lock_guard lock(abort_mutex_);
  finishing_ = finishing;
  attended_ns_ = clock_ns();
}

void SimDevice::attend_to_copies() {
  if (!finishing_ || graph_.attend == nullptr) return;
  if (clock_ns() - attended_ns_ < static_cast<uint64_t>(SimRun::kAttendNs)) return;
  graph_.attend(graph_.attend_context);
  attended_ns_ = clock_ns();
}

void SimDevice::abort(const pto_error* cause, int32_t lost) {
  const std::lock_guard lock(abort_mutex_);
  const bool running = run_.running();
  if (running && cause != nullptr) cause_ = *cause;
  // Notify the runtime even if the run has already ended with a proven deadlock, because the
  // orchestration may continue after the proof.
  if (run_.hears() || finishing_) api_->abort(runtime_, cause);
  if (running) {
    run_.end(Ending::aborted);
    engine_->ended();
  }
  if (lost == 0) return;
  lost_.store(true, std::memory_order_release);
  tracer_.leave_counters();
  engine_->abandon();
}

pto_status SimDevice::wait_status(const uint32_t* word, uint32_t expected) const {
  if (OrchestratorState::changed(word, expected)) return PTO_OK;
  const bool stuck = api_->last_error(runtime_, nullptr) == PTO_ERROR_DEADLOCK;
  return stuck ? PTO_ERROR_DEADLOCK : PTO_ERROR_ABORTED;
}

pto_status SimDevice::check_value(uint64_t value, pto_error* error) const {
  if (!memory_.checking()) return PTO_OK;
  return memory_.check_value(value, graph_.ranges, graph_.num_ranges, error);
}

pto_status SimDevice::check_range(uint64_t address, size_t bytes, pto_error* error) const {
  return memory_.check_range(address, bytes, graph_.ranges, graph_.num_ranges, error);
}

pto_status SimDevice::check_host(const void* host, size_t bytes, pto_error* error) const {
  const uint64_t address = reinterpret_cast<uint64_t>(host);
  for (uint32_t i = 0; i < graph_.num_ranges; ++i) {
    const pto_host_range& range = graph_.ranges[i];
    const uint64_t offset = address - range.address;
    if (offset >= range.bytes || bytes <= range.bytes - offset) continue;
    fail(error, PTO_ERROR_ADDRESS,
         "%zu bytes from host address 0x%" PRIx64 " exceed the tensor argument of %" PRIu64
         " bytes, in which the address has the offset %" PRIu64 "; copy at most %" PRIu64,
         bytes, address, range.bytes, offset, range.bytes - offset);
    return PTO_ERROR_ADDRESS;
  }
  return PTO_OK;
}

// Returns the first error of the run, which the runtime has latched. The runtime has none after an
// abort, or if it returned PTO_STEP_ERROR without an error record.
pto_status SimDevice::outcome(pto_error* error) {
  const pto_status latched = last_error(error);
  if (latched != PTO_OK) return latched;
  if (run_.ending() == Ending::success) return PTO_OK;
  if (run_.ending() == Ending::failure) {
    return fail(error, PTO_ERROR_INTERNAL, "runtime %s stopped without an error", api_->variant);
  }
  const std::lock_guard lock(abort_mutex_);
  if (cause_.status == PTO_OK) return fail(error, PTO_ERROR_ABORTED, "the run was aborted");
  if (error != nullptr) *error = cause_;
  return cause_.status;
}

pto_status SimDevice::latched(pto_status status, pto_error* error) const {
  if (last_error(error) != PTO_OK) return status;
  return fail(error, status, "runtime %s failed with status %d and no message", api_->variant,
              status);
}

// Returns the status of the runtime's first error, and copies the error unless `error` is null.
// Combines two messages for the user: the message of the runtime names the operation, and the
// message of the platform states why it failed.
pto_status SimDevice::last_error(pto_error* error) const {
  const pto_status status = api_->last_error(runtime_, error);
  if (error == nullptr || status == PTO_OK) return status;
  if (platform_cause_.status != status || platform_cause_.message[0] == 0) return status;
  const std::string message = error->message;
  std::snprintf(error->message, sizeof error->message, "%.470s (%.470s)", message.c_str(),
                platform_cause_.message);
  if (error->limit == 0) error->limit = platform_cause_.limit;
  return status;
}

void SimDevice::fill_report(pto_run_report& report) const {
  std::memset(&report, 0, sizeof report);
  for (uint32_t core = 0; core < run_.topology().cores; ++core) {
    report.cores[core] = cores_.usage(core);
    report.tasks += report.cores[core].tasks;
  }
  const CopyCounts copies = memory_.copies();
  report.build_ns = run_.build_ns();
  report.run_ns = run_.run_ns();
  report.copy_ns = copies.ns;
  report.bytes_in = copies.bytes_in;
  report.bytes_out = copies.bytes_out;
  report.copies_in = copies.copies_in;
  report.copies_out = copies.copies_out;
  report.trace_hash = engine_->trace_hash();
  report.peak_bytes = memory_.peak_bytes();
}

void SimDevice::forget_run() {
  const std::lock_guard lock(abort_mutex_);
  api_->end(runtime_);
  memory_.end_run();
  dump_.end();
  loader_.end_run();
  graph_ = {};
  tracer_.set_trace(nullptr, false);
  run_.forget();
}

}  // namespace pto::sim
