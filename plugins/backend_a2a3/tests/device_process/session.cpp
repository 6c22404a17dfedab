#include "device_process/session.hpp"

#include <unistd.h>

#include <cstring>
#include <memory>

#include "check.hpp"
#include "pto/engine/run_image.hpp"

namespace {

constexpr uint64_t kInputBytes = 1 << 16;

}  // namespace

Session::Session(const SessionSettings& settings)
    : Session(std::make_unique<Silicon>(settings.silicon), settings) {}

Session::Session(std::unique_ptr<Silicon> own, const SessionSettings& settings)
    : own_(std::move(own)),
      silicon_(*own_),
      settings_(settings),
      library_(silicon_.load(PTO_DEVICE_LIBRARY)),
      executor_(silicon_.load_code(PTO_EXECUTOR)) {
  open();
}

Session::Session(Session& sibling, const SessionSettings& settings)
    : silicon_(sibling.silicon_),
      settings_(settings),
      library_(sibling.library_),
      executor_(sibling.executor_) {
  open();
}

void Session::open() {
  status_at_ = silicon_.allocate(sizeof(pto_a2a3_status));
  control_at_ = silicon_.upload(control_);
  progress_at_ = silicon_.allocate(sizeof(pto_a2a3_progress));
  log_at_ = silicon_.allocate(sizeof(pto_a2a3_log));
  cores_at_ = silicon_.upload(*std::make_unique<pto_a2a3_cores>());
  input_at_ = silicon_.allocate(kInputBytes);
  const silicon_info info = silicon_.query();
  pto_a2a3_device device{};
  device.magic = PTO_A2A3_MAGIC;
  device.version = PTO_A2A3_VERSION;
  device.device_id = settings_.device_id;
  device.blocks = settings_.blocks;
  device.flags = settings_.flags;
  device.log_level = settings_.log_level;
  device.gate_timeout_ms = settings_.gate_timeout_ms;
  for (uint16_t i = 0; i < 16; ++i) {
    if ((info.aicpu_mask >> i & 1) != 0) device.cpus[device.num_cpus++] = i;
  }
  device.pool_bytes = settings_.pool_bytes;
  device.pool = silicon_.allocate(settings_.pool_bytes);
  device.cores = cores_at_;
  device.control = control_at_;
  device.progress = progress_at_;
  device.log = log_at_;
  for (uint32_t i = 0; i < PTO_A2A3_PHYSICAL_CORES; ++i) {
    device.registers[i] = info.registers[settings_.uses_registers ? i : 74 - i];
  }
  silicon_.copy_in(input_at_, &device, sizeof device);
  CHECK_EQUAL(command(PTO_A2A3_INIT, input_at_, sizeof device, 0), PTO_OK);
  device_ = status.handle;
  config.aicpu_thread_num = 3;
}

Session::~Session() {
  if (is_lost) return;
  CHECK_EQUAL(command(PTO_A2A3_QUIT, 0, 0, 0), PTO_OK);
  if (own_ != nullptr) CHECK_EQUAL(own_->end(), 0);
}

pto_a2a3_launch Session::launch_of(uint32_t command, uint64_t input, uint64_t bytes,
                                   uint64_t handle) {
  pto_a2a3_launch launch{};
  launch.magic = PTO_A2A3_MAGIC;
  launch.version = PTO_A2A3_VERSION;
  launch.command = command;
  launch.threads = command == PTO_A2A3_RUN ? aicpu_threads : 1;
  launch.sequence = ++sequence_;
  launch.device = device_;
  launch.status = status_at_;
  launch.input = input;
  launch.input_bytes = bytes;
  launch.handle = handle;
  launch.core_launch = core_launch_;
  return launch;
}

pto_status Session::command(uint32_t command, uint64_t input, uint64_t bytes, uint64_t handle) {
  const pto_a2a3_launch launch = launch_of(command, input, bytes, handle);
  aicpu_ = silicon_.launch(SILICON_AICPU, library_, PTO_A2A3_AICPU_SYMBOL, 1, launch);
  aicpu_end = silicon_.wait(aicpu_);
  CHECK_EQUAL(aicpu_end.kind, uint32_t{SILICON_COMPLETED});
  CHECK_EQUAL(aicpu_end.result, 0u);
  silicon_.copy_out(&status, status_at_, sizeof status);
  CHECK_EQUAL(status.sequence, launch.sequence);
  CHECK_EQUAL(status.command, command);
  return status.status;
}

uint64_t Session::load(uint32_t kind, const std::string& path, uint64_t* address) {
  pto_a2a3_library library{};
  library.magic = PTO_A2A3_MAGIC;
  library.kind = kind;
  library.image = silicon_.upload_file(path, library.image_bytes);
  silicon_.copy_in(input_at_, &library, sizeof library);
  if (command(PTO_A2A3_LOAD, input_at_, sizeof library, 0) != PTO_OK) {
    check::fail(__FILE__, __LINE__, status.error.message);
  }
  if (address != nullptr) *address = status.address;
  return status.handle;
}

pto_status Session::load_bytes(uint64_t address, uint64_t bytes) {
  const pto_a2a3_library library{PTO_A2A3_MAGIC, PTO_A2A3_VARIANT, address, bytes, {}};
  silicon_.copy_in(input_at_, &library, sizeof library);
  return command(PTO_A2A3_LOAD, input_at_, sizeof library, 0);
}

pto_status Session::unload(uint64_t handle) {
  return command(PTO_A2A3_UNLOAD, 0, 0, handle);
}

pto_status Session::attach(const std::string& library, const std::string& variant,
                           const Options& options) {
  pto_a2a3_attach attach{};
  attach.magic = PTO_A2A3_MAGIC;
  attach.library = load(PTO_A2A3_VARIANT, library);
  attach.num_options = static_cast<uint32_t>(options.size());
  std::memcpy(attach.variant, variant.c_str(), variant.size());
  std::string texts;
  for (const auto& [key, value] : options) texts += key + '\0' + value + '\0';
  attach.options_bytes = texts.size();
  silicon_.copy_in(input_at_, &attach, sizeof attach);
  silicon_.copy_in(input_at_ + sizeof attach, texts.data(), texts.size());
  return command(PTO_A2A3_ATTACH, input_at_, sizeof attach + texts.size(), 0);
}

void Session::add_kernel(int32_t func_id, int32_t core_type, const std::string& library) {
  uint64_t address = 0;
  load(PTO_A2A3_KERNEL, library, &address);
  add_kernel_at(func_id, core_type, address);
}

void Session::add_kernel_at(int32_t func_id, int32_t core_type, uint64_t address) {
  kernels_.push_back({func_id, core_type, address, nullptr, nullptr});
}

pto_run Session::describe(const std::vector<uint64_t>& args) const {
  pto_run run{};
  run.kernels = kernels_.data();
  run.num_kernels = static_cast<uint32_t>(kernels_.size());
  run.args = args.data();
  run.num_args = static_cast<uint32_t>(args.size());
  run.config = &config;
  return run;
}

void Session::start(uint64_t orchestration, const std::vector<uint64_t>& args,
                    const std::vector<char>& graph) {
  pto_run run = describe(args);
  run.library = 1;  // the host's handle, which means nothing on the device
  const uint64_t bytes = pto::engine::run_image_bytes(run);
  CHECK(bytes <= kInputBytes);
  std::vector<uint64_t> image(bytes / 8 + 1);
  pto::engine::write_run_image(run, image.data());
  silicon_.copy_in(input_at_, image.data(), bytes);
  const uint32_t blocks =
      config.block_dim > 0 ? static_cast<uint32_t>(config.block_dim) : settings_.blocks;
  const pto_a2a3_core_launch cores{cores_at_, ++core_launch_, SILICON_FLAG_BASE, 0};
  aicore_ = silicon_.launch(SILICON_AICORE, executor_, PTO_A2A3_EXECUTOR_SYMBOL, blocks, cores);
  pto_a2a3_launch launch = launch_of(PTO_A2A3_RUN, input_at_, bytes, orchestration);
  if (!graph.empty()) {
    launch.graph = silicon_.allocate(graph.size());
    launch.graph_bytes = graph.size();
    silicon_.copy_in(launch.graph, graph.data(), graph.size());
  }
  aicpu_ = silicon_.launch(SILICON_AICPU, library_, PTO_A2A3_AICPU_SYMBOL, aicpu_threads, launch);
}

pto_status Session::finish() {
  aicpu_end = silicon_.wait(aicpu_);
  if (aicpu_end.kind != SILICON_COMPLETED) {
    is_lost = true;
    aicore_end = silicon_.wait(aicore_);
    return PTO_ERROR_LOST;
  }
  CHECK_EQUAL(aicpu_end.result, 0u);
  silicon_.copy_out(&status, status_at_, sizeof status);
  CHECK_EQUAL(status.sequence, sequence_);
  if (status.status == PTO_ERROR_LOST) {
    is_lost = true;
  } else {
    aicore_end = silicon_.wait(aicore_);
    CHECK_EQUAL(aicore_end.kind, uint32_t{SILICON_COMPLETED});
  }
  return status.status;
}

pto_status Session::finish_without_end() {
  is_lost = true;
  do {
    CHECK(!has_ended());
    usleep(1000);
    silicon_.copy_out(&status, status_at_, sizeof status);
  } while (status.sequence != sequence_);
  return status.status;
}

void Session::abort(const pto_error& cause, bool abandons) {
  control_.cause = cause;
  silicon_.copy_in(control_at_ + offsetof(pto_a2a3_control, cause), &control_.cause,
                   sizeof control_.cause);
  control_.abort = sequence_;
  control_.abandon = abandons ? sequence_ : 0;
  silicon_.copy_in(control_at_, &control_, offsetof(pto_a2a3_control, cause));
}

std::string Session::explain() {
  control_.explain = ++requests_;
  silicon_.copy_in(control_at_, &control_, offsetof(pto_a2a3_control, cause));
  const auto copy = std::make_unique<pto_a2a3_progress>();
  do {
    if (has_ended()) return "";
    *copy = progress();
  } while (copy->explained != requests_);
  return std::string(copy->explanation, copy->explanation_bytes);
}

pto_a2a3_progress Session::progress() const {
  pto_a2a3_progress copy;
  silicon_.copy_out(&copy, progress_at_, sizeof copy);
  return copy;
}

std::vector<Session::InFlight> Session::in_flight() const {
  const pto_a2a3_progress progress = this->progress();
  const auto cores = std::make_unique<pto_a2a3_cores>();
  silicon_.copy_out(cores.get(), cores_at_, sizeof *cores);
  std::vector<InFlight> all;
  for (uint32_t core = 0; core < 3 * settings_.blocks; ++core) {
    if (pto_a2a3_in_flight(&progress, cores.get(), core) == 0) continue;
    const pto_payload& task = cores->slot[core].payload;
    all.push_back({core, cores->handshake[core].physical, task.func_id, task.task});
  }
  return all;
}

std::string Session::log() const {
  const auto copy = std::make_unique<pto_a2a3_log>();
  silicon_.copy_out(copy.get(), log_at_, sizeof *copy);
  std::string text;
  for (uint64_t i = 0; i < copy->written; ++i) text += std::string(copy->entry[i].text) + "\n";
  return text;
}
