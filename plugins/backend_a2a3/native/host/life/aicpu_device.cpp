#include "life/aicpu_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "error.hpp"
#include "pto/engine/run_image.hpp"
#include "pto/host/backend_table.hpp"

namespace pto::a2a3 {

using namespace cann;

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// A device that has lost a thread or a core answers, but its streams may never end.
constexpr int64_t kLookNs = kSecondNs / 100;

constexpr size_t kLeastInput = 1 << 16;

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int64_t limit_ns(const Card& card) {
  return card.limits().synchronise_s * kSecondNs;
}

bool has_bit(uint64_t mask, uint64_t bit) {
  return (mask >> bit & 1) != 0;
}

// The pool is the largest block, and a setting has its size.
void name_pool(Card& card, uint64_t bytes, pto_error* error) {
  if (error == nullptr) return;
  size_t unused = 0, total = 0;
  card.memory().usage(&unused, &total, nullptr);
  std::snprintf(
      error->message, sizeof error->message,
      "%s failed with code %d: device %d has no %llu MiB for the pool of the runtime; %zu "
      "of its %zu MiB are free. Set a2a3.pool_mib (PTO_A2A3_POOL_MIB) to fewer MiB, or "
      "end other processes that use the device (`npu-smi info` lists them)",
      error->vendor_function, error->vendor_code, card.session().device(),
      static_cast<unsigned long long>(bytes >> 20), unused >> 20, total >> 20);
}

void lose_abandoned_run(Card& card, pto_error* failure) {
  pto_error lost;
  fail(&lost, PTO_ERROR_LOST,
       "the device did not end the run within 2 s after the run was abandoned; open the device "
       "again");
  card.lose(lost, failure);
}

// The device has a shorter limit for kernels, so what goes on is on the AICPU, or nothing answers.
pto_status lose_late(Card& card, const char* what, uint32_t number, pto_error* failure) {
  pto_error lost;
  fail(&lost, PTO_ERROR_LOST,
       "the device did not end %s %u within %u s (a2a3.synchronise_timeout_s); open the device "
       "again, and raise this limit and a2a3.kernel_timeout_s for longer runs",
       what, number, card.limits().synchronise_s);
  return card.lose(lost, failure);
}

}  // namespace

pto_status AicpuDevice::open(const DeviceImages& images, const AicpuOptions& options,
                             pto_error* error) {
  pto_status status = install(images, options.bootstrap, error);
  if (status == PTO_OK) status = initialise(options, error);
  if (status != PTO_OK) close(nullptr);
  return status;
}

pto_status AicpuDevice::install(const DeviceImages& images, const BootstrapNames& replaced,
                                pto_error* error) {
  const AicpuImages files = {images.dispatcher.data(), images.dispatcher.size(),
                             images.library.data(), images.library.size()};
  library_.emplace(card_);
  BootstrapNames names;
  const Version version = card_.session().driver().version();
  pto_status status = find_bootstrap(version, replaced, &names, error);
  if (status == PTO_OK) status = library_->install(names, files, error);
  if (status == PTO_OK) status = library_->find(PTO_A2A3_AICPU_SYMBOL, &serve_, error);
  if (status == PTO_OK) {
    status =
        card_.register_cores(images.executor.data(), images.executor.size(), &executor_, error);
  }
  return status == PTO_OK ? card_.renew_core_stream(error) : status;
}

pto_status AicpuDevice::allocate(size_t bytes, uint64_t* address, pto_error* error) {
  const pto_status status = card_.memory().allocate(bytes, address, error);
  if (status == PTO_OK) blocks_.push_back(*address);
  return status;
}

pto_status AicpuDevice::allocate_blocks(pto_a2a3_device& device, pto_error* error) {
  CardMemory& memory = card_.memory();
  pto_status status = allocate(sizeof(pto_a2a3_status), &status_, error);
  if (status == PTO_OK) status = allocate(sizeof(pto_a2a3_cores), &cores_, error);
  if (status == PTO_OK) status = allocate(sizeof(pto_a2a3_control), &device.control, error);
  if (status == PTO_OK) status = allocate(sizeof(pto_a2a3_progress), &device.progress, error);
  if (status == PTO_OK) status = allocate(sizeof(pto_a2a3_log), &device.log, error);
  if (status != PTO_OK) return status;
  status = allocate(device.pool_bytes, &device.pool, error);
  if (status == PTO_ERROR_MEMORY) name_pool(card_, device.pool_bytes, error);
  if (status == PTO_OK) status = memory.fill(status_, 0, sizeof(pto_a2a3_status), error);
  if (status == PTO_OK) status = memory.fill(cores_, 0, sizeof(pto_a2a3_cores), error);
  if (status == PTO_OK) status = mailbox_.open(device.control, device.progress, error);
  device.cores = cores_;
  progress_ = device.progress;
  return status;
}

pto_status AicpuDevice::initialise(const AicpuOptions& options, pto_error* error) {
  pto_a2a3_device device = {};
  device.magic = PTO_A2A3_MAGIC;
  device.version = PTO_A2A3_VERSION;
  device.device_id = static_cast<int32_t>(card_.driver_device());
  device.blocks = card_.blocks();
  device.flags = options.flags;
  device.log_level = options.log.level;
  device.gate_timeout_ms = options.gate_timeout_ms;
  device.pool_bytes = options.pool_bytes;
  pto_status status = allocate_blocks(device, error);
  log_.open(device.log, options.log.is_json);
  texts_.emplace(card_.session(), options.log.is_json);
  if (status == PTO_OK) status = find_hardware(device, error);
  if (status == PTO_OK) status = command(PTO_A2A3_INIT, &device, sizeof device, 0, error);
  if (status != PTO_OK) return status;
  device_ = answer_->handle;
  has_planning_ = (answer_->capabilities & PTO_A2A3_PLANNING) != 0;
  return PTO_OK;
}

// Finds the AICPU processors, and the register page of each core that exists.
pto_status AicpuDevice::find_hardware(pto_a2a3_device& device, pto_error* error) {
  Hardware hardware = {};
  const pto_status status = read_hardware(card_, &hardware, error);
  if (status != PTO_OK) return status;
  flag_base_ = hardware.flag_base;
  const uint64_t clusters = hardware.clusters.value_or(~uint64_t{0});
  for (const uint64_t part : {PTO_A2A3_AICPU_CLUSTER, ~PTO_A2A3_AICPU_CLUSTER}) {
    for (uint16_t number = 0; number < 64 && device.num_cpus < PTO_A2A3_MAX_AICPU_CPUS; ++number) {
      if (has_bit(hardware.processors & part, number)) device.cpus[device.num_cpus++] = number;
    }
  }
  threads_ = device.num_cpus;
  for (uint32_t physical = 0; physical < PTO_A2A3_PHYSICAL_CORES; ++physical) {
    const uint64_t offset = pto_a2a3_page_offset(physical);
    const bool exists = has_bit(clusters, offset / PTO_A2A3_CLUSTER_STRIDE);
    if (exists) device.registers[physical] = hardware.registers + offset;
  }
  return PTO_OK;
}

// Releases the rest also after a failure, and returns the first one.
pto_status AicpuDevice::close(pto_error* error) {
  if (!library_) return PTO_OK;
  pto_status status = PTO_OK;
  const auto release = [&](auto call) {
    if (!card_.is_usable()) return;  // the forced reset frees everything
    const pto_status released = call(status == PTO_OK ? error : nullptr);
    if (status == PTO_OK) status = released;
  };
  if (device_ != 0) {
    release([this](pto_error* failure) { return command(PTO_A2A3_QUIT, nullptr, 0, 0, failure); });
  }
  blocks_.insert(blocks_.end(), {graph_, input_, texts_ ? texts_->address() : 0});
  for (const uint64_t block : blocks_) {
    if (block == 0) continue;
    release([&](pto_error* failure) { return card_.memory().free(block, failure); });
  }
  release([this](pto_error* failure) { return library_->unload(failure); });
  const bool is_forgotten = !card_.is_usable();
  library_.reset();
  texts_.reset();
  blocks_.clear();
  device_ = input_ = input_bytes_ = graph_ = 0;
  sequence_ = core_launch_ = 0;
  mailbox_.end();
  return is_forgotten ? PTO_OK : status;
}

pto_status AicpuDevice::load(uint32_t kind, const std::string& file, const char* symbol,
                             uint64_t* handle, uint64_t* address, pto_error* error) {
  pto_a2a3_library library = {};
  library.magic = PTO_A2A3_MAGIC;
  library.kind = kind;
  library.image_bytes = file.size();
  if (symbol != nullptr && std::strlen(symbol) >= sizeof library.symbol) {
    return fail(error, PTO_ERROR_USAGE, "the symbol %s has %zu characters; at most %zu fit", symbol,
                std::strlen(symbol), sizeof library.symbol - 1);
  }
  if (symbol != nullptr) std::strncpy(library.symbol, symbol, sizeof library.symbol - 1);
  CardMemory& memory = card_.memory();
  pto_status status = memory.allocate(file.size(), &library.image, error);
  if (status != PTO_OK) return status;
  status = memory.copy_in(library.image, file.data(), file.size(), error);
  if (status == PTO_OK) {
    status = command(PTO_A2A3_LOAD, &library, sizeof library, 0, error);
    *handle = answer_->handle;
    if (address != nullptr) *address = answer_->address;
  }
  const pto_status freed = memory.free(library.image, status == PTO_OK ? error : nullptr);
  return status == PTO_OK ? freed : status;
}

pto_status AicpuDevice::unload(uint64_t handle, pto_error* error) {
  return command(PTO_A2A3_UNLOAD, nullptr, 0, handle, error);
}

pto_status AicpuDevice::attach(uint64_t library, const char* variant,
                               std::span<const pto_option> options, pto_error* error) {
  pto_a2a3_attach head = {};
  head.magic = PTO_A2A3_MAGIC;
  head.num_options = static_cast<uint32_t>(options.size());
  head.library = library;
  std::strncpy(head.variant, variant, sizeof head.variant - 1);
  std::string texts;
  for (const pto_option& option : options) {
    texts += std::string(option.key) + '\0' + option.value + '\0';
  }
  head.options_bytes = texts.size();
  std::string input(reinterpret_cast<const char*>(&head), sizeof head);
  input += texts;
  const pto_status status = command(PTO_A2A3_ATTACH, input.data(), input.size(), 0, error);
  if (status == PTO_OK) texts_->set_capabilities(answer_->capabilities);
  return status;
}

pto_status AicpuDevice::detach(pto_error* error) {
  return command(PTO_A2A3_DETACH, nullptr, 0, 0, error);
}

pto_status AicpuDevice::command(uint32_t command, const void* input, size_t bytes, uint64_t handle,
                                pto_error* error) {
  pto_status status = put_input(input, bytes, error);
  if (status != PTO_OK) return status;
  const pto_a2a3_launch launch = describe(command, bytes, handle);
  status = library_->launch(serve_, 1, &launch, sizeof launch, error);
  if (status == PTO_OK) status = card_.wait(limit_ns(card_), error);
  if (status == PTO_PENDING) return lose_late(card_, "command", command, error);
  return status == PTO_OK ? read_answer(error) : status;
}

pto_status AicpuDevice::put_input(const void* bytes, size_t count, pto_error* error) {
  pto_status status = PTO_OK;
  if (count > input_bytes_) {
    if (input_ != 0) status = card_.memory().free(std::exchange(input_, 0), error);
    const size_t larger = std::max(count, kLeastInput);
    if (status == PTO_OK) status = card_.memory().allocate(larger, &input_, error);
    input_bytes_ = status == PTO_OK ? larger : 0;
  }
  return status == PTO_OK ? card_.memory().copy_in(input_, bytes, count, error) : status;
}

pto_a2a3_launch AicpuDevice::describe(uint32_t command, size_t bytes, uint64_t handle) {
  pto_a2a3_launch launch = {};
  launch.magic = PTO_A2A3_MAGIC;
  launch.version = PTO_A2A3_VERSION;
  launch.command = command;
  launch.threads = command == PTO_A2A3_RUN ? threads_ : 1;
  launch.sequence = ++sequence_;
  launch.device = device_;
  launch.status = status_;
  launch.input = bytes > 0 ? input_ : 0;
  launch.input_bytes = bytes;
  launch.handle = handle;
  launch.core_launch = core_launch_;
  return launch;
}

// Copies the answer to the newest command, and returns its status.
pto_status AicpuDevice::read_answer(pto_error* error) {
  const pto_status status =
      card_.memory().copy_out(answer_.get(), status_, sizeof(pto_a2a3_status), error);
  if (status != PTO_OK) return status;
  mailbox_.set_log_read(log_.read(card_.memory()));
  texts_->read();
  if (answer_->sequence != sequence_) {
    return fail(error, PTO_ERROR_INTERNAL,
                "the device library ended command %llu without an answer; its newest answer has "
                "number %llu. Check that host and device have one version of the plugin",
                static_cast<unsigned long long>(sequence_),
                static_cast<unsigned long long>(answer_->sequence));
  }
  if (answer_->status == PTO_OK) return PTO_OK;
  answer_->error.message[sizeof answer_->error.message - 1] = '\0';
  if (answer_->status == PTO_ERROR_LOST) return card_.lose(answer_->error, error);
  if (error != nullptr) *error = answer_->error;
  return answer_->status;
}

pto_status AicpuDevice::start(const pto_run& run, uint64_t orchestration,
                              std::span<const char> graph, uint64_t dump, pto_error* error) {
  CardMemory& memory = card_.memory();
  failure_ = {};
  *answer_ = {};
  std::vector<uint64_t> image(engine::run_image_bytes(run) / sizeof(uint64_t));
  engine::write_run_image(run, image.data());
  pto_status status = put_input(image.data(), image.size() * sizeof(uint64_t), error);
  if (status == PTO_OK && graph_ != 0) status = memory.free(std::exchange(graph_, 0), error);
  if (status == PTO_OK && !graph.empty()) {
    status = memory.allocate(graph.size(), &graph_, error);
    if (status == PTO_OK) status = memory.copy_in(graph_, graph.data(), graph.size(), error);
  }
  return status == PTO_OK ? launch(run, orchestration, graph.size(), dump, error) : status;
}

// Launches the cores, then the AICPU threads: this order starts faster.
pto_status AicpuDevice::launch(const pto_run& run, uint64_t orchestration, uint64_t graph_bytes,
                               uint64_t dump, pto_error* error) {
  uint32_t blocks = 0;
  pto_status status = host::find_blocks(run.config, card_.blocks(), &blocks, error);
  if (status != PTO_OK) return status;
  const pto_a2a3_core_launch cores = {cores_, ++core_launch_, flag_base_, texts_->address()};
  texts_->begin_run(blocks);
  pto_a2a3_launch aicpu = describe(PTO_A2A3_RUN, engine::run_image_bytes(run), orchestration);
  aicpu.graph = graph_;
  aicpu.graph_bytes = graph_bytes;
  aicpu.dump = dump;
  status = card_.launch_cores(executor_, blocks, &cores, sizeof cores, error);
  if (status != PTO_OK) return status;
  latest_end_ns_ = now_ns() + limit_ns(card_);
  mailbox_.begin(sequence_);
  status = library_->launch(serve_, threads_, &aicpu, sizeof aicpu, error);
  if (status == PTO_OK) return status;
  mailbox_.end();
  // Cores that wait for the AICPU leave.
  card_.memory().copy_in(cores_ + offsetof(pto_a2a3_cores, closed), &core_launch_,
                         sizeof core_launch_, nullptr);
  return status;
}

pto_status AicpuDevice::wait(int64_t timeout_ns) {
  const int64_t end_ns = now_ns() + timeout_ns;
  for (;;) {
    const int64_t left_ns = std::max<int64_t>(end_ns - now_ns(), 0);
    const pto_status status = card_.wait(std::min(left_ns, kLookNs), &failure_);
    if (status != PTO_PENDING || has_lost_answer()) return PTO_OK;
    mailbox_.set_log_read(log_.read(card_.memory()));
    texts_->read();
    if (mailbox_.is_overdue()) {
      lose_abandoned_run(card_, &failure_);
      return PTO_OK;
    }
    if (now_ns() >= latest_end_ns_) {
      lose_late(card_, "run", static_cast<uint32_t>(core_launch_), &failure_);
      return PTO_OK;
    }
    if (now_ns() >= end_ns) return PTO_PENDING;
  }
}

// Returns whether the device has answered that it is lost, or cannot be asked any more.
bool AicpuDevice::has_lost_answer() {
  constexpr size_t kHead = offsetof(pto_a2a3_status, handle);
  pto_error failure = {};
  if (card_.memory().copy_out(answer_.get(), status_, kHead, &failure) != PTO_OK) {
    if (card_.is_usable()) return false;  // the run still runs
    failure_ = failure;
    return true;
  }
  return answer_->sequence == sequence_ && answer_->status == PTO_ERROR_LOST;
}

pto_status AicpuDevice::finish(pto_error* error) {
  mailbox_.end();
  if (failure_.status == PTO_OK) return read_answer(error);
  if (!card_.is_usable()) {
    name_in_flight(card_.session(), progress_, cores_, failure_);
    log_.salvage(card_.session());
    texts_->salvage();
  }
  *answer_ = {};
  if (error != nullptr) *error = failure_;
  return failure_.status;
}

namespace {

constexpr int64_t kAbandonNs = 2 * kSecondNs;
constexpr int kLooks = 50;
constexpr std::chrono::milliseconds kPause{1};
constexpr size_t kHead = offsetof(pto_a2a3_control, cause);

}  // namespace

pto_status RunMailbox::open(uint64_t control, uint64_t progress, pto_error* error) {
  const std::lock_guard lock(mutex_);
  control_ = control;
  progress_ = progress;
  asked_ = {};
  run_ = 0;
  return card_.memory().copy_in(control_, &asked_, sizeof asked_, error);
}

void RunMailbox::begin(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  run_ = sequence;
  abandoned_at_ns_ = 0;
}

void RunMailbox::end() {
  const std::lock_guard lock(mutex_);
  run_ = 0;
}

// A failed copy has no consequence here: the wait for the run returns the failure.
void RunMailbox::abort(const pto_error* cause, bool abandons) {
  const std::lock_guard lock(mutex_);
  if (run_ == 0) return;
  CardMemory& memory = card_.memory();
  clear(asked_.cause);
  if (cause != nullptr) asked_.cause = *cause;
  memory.copy_in(control_ + kHead, &asked_.cause, sizeof asked_.cause, nullptr);
  asked_.abort = run_;
  asked_.abandon = abandons ? run_ : 0;
  memory.copy_in(control_, &asked_, kHead, nullptr);
  if (abandons && abandoned_at_ns_ == 0) abandoned_at_ns_ = now_ns();
}

bool RunMailbox::is_overdue() {
  const std::lock_guard lock(mutex_);
  return abandoned_at_ns_ != 0 && now_ns() - abandoned_at_ns_ >= kAbandonNs;
}

bool RunMailbox::explain(std::string& text) {
  const std::lock_guard lock(mutex_);
  if (run_ != 0) text = ask();
  return run_ != 0;
}

void RunMailbox::set_log_read(uint64_t count) {
  const std::lock_guard lock(mutex_);
  if (asked_.log_read == count) return;
  asked_.log_read = count;
  card_.memory().copy_in(control_, &asked_, kHead, nullptr);
}

// With the mutex.
std::string RunMailbox::ask() {
  const auto progress = std::make_unique<pto_a2a3_progress>();
  ++asked_.explain;
  card_.memory().copy_in(control_, &asked_, kHead, nullptr);
  for (int look = 0; look < kLooks && progress->explained != asked_.explain; ++look) {
    std::this_thread::sleep_for(kPause);
    if (card_.memory().copy_out(progress.get(), progress_, sizeof *progress, nullptr) != PTO_OK) {
      return "";
    }
  }
  const uint64_t answered = progress->explained;
  const uint64_t bytes = progress->explanation_bytes;
  if (answered == 0 || answered > asked_.explain || bytes > sizeof progress->explanation) return "";
  const std::string text(progress->explanation, bytes);
  if (answered == asked_.explain) return text;
  return "the device does not answer; an earlier state:\n" + text;
}

namespace {

constexpr uint32_t kMostNamed = 8;

// The AICPU writes back every 10 ms at most which tasks have finished.
constexpr std::chrono::milliseconds kSettleTime{20};

std::string describe(const pto_payload& task, uint32_t core) {
  return "kernel " + std::to_string(task.func_id) + " of task " + std::to_string(task.task) +
         " on core " + std::to_string(core);
}

}  // namespace

void add_in_flight(const pto_a2a3_progress& progress, const pto_a2a3_cores& cores,
                   pto_error& failure) {
  uint32_t count = 0, last = 0;
  std::string named;
  for (uint32_t core = 0; core < PTO_MAX_CORES; ++core) {
    if (pto_a2a3_in_flight(&progress, &cores, core) == 0) continue;
    last = core;
    if (++count > kMostNamed) continue;
    named += (count > 1 ? ", " : "") + describe(cores.slot[core].payload, core);
  }
  if (count > kMostNamed) named += " and " + std::to_string(count - kMostNamed) + " more";
  if (count == 0) named = "no task";
  const std::string message = "In flight: " + named + ". " + failure.message;
  std::snprintf(failure.message, sizeof failure.message, "%s", message.c_str());
  const bool is_of_kernel =
      failure.status == PTO_ERROR_KERNEL || failure.status == PTO_ERROR_TIMEOUT;
  if (count != 1 || !is_of_kernel) return;
  const pto_payload& task = cores.slot[last].payload;
  failure.func_id = task.func_id;
  failure.task = static_cast<int64_t>(task.task);
  failure.core = static_cast<int32_t>(last);
}

void name_in_flight(CardSession& session, uint64_t progress, uint64_t cores, pto_error& failure) {
  const auto states = std::make_unique<pto_a2a3_progress>();
  const auto slots = std::make_unique<pto_a2a3_cores>();
  std::this_thread::sleep_for(kSettleTime);
  const auto lock = session.lock();
  if (!session.salvage(states.get(), progress, sizeof *states)) return;
  if (!session.salvage(slots.get(), cores, sizeof *slots)) return;
  add_in_flight(*states, *slots, failure);
}

}  // namespace pto::a2a3
