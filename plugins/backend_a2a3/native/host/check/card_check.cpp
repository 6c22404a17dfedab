// Checks the libraries of CANN and one card, in stages, and writes one line of JSON for each stage.
//
//   card_check [only=libraries] [device=N] [folder=PATH] [version=TEXT] [fake=1]
//              [visible=NUMBERS] [images=FOLDER] [kernel_timeout_s=N] [synchronise_timeout_s=N]
//              [bootstrap_operation=NAME] [bootstrap_kernel=NAME] [bootstrap_library=NAME]
//
// `visible` is the value of ASCEND_RT_VISIBLE_DEVICES. `images` is the folder of the libraries for
// the device; without it, the check ends before the stage "dispatcher". The names bootstrap_*
// replace those of the CANN release. It ends after the first stage that failed, with exit code 1.
// It is a process of its own, because CANN cannot be unloaded, and because a process that has
// loaded it must not fork.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "abi/probe.h"
#include "error.hpp"
#include "life/kernels.hpp"

using namespace pto::a2a3;

namespace {

constexpr size_t kCopyBytes = (size_t{1} << 20) + 1;
constexpr uint64_t kPoolBytes = 1 << 20;
constexpr uint32_t kGateMs = 5000;
constexpr int64_t kRunNs = int64_t{20} * 1000 * 1000 * 1000;
constexpr uint32_t kNumbers = 1000;

struct Settings {
  bool only_libraries = false;
  CardOptions card;
  cann::DriverOptions driver;
  std::string images;
  cann::BootstrapNames bootstrap;
};

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end;
}

bool read_setting(std::string_view text, Settings& settings) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string_view key = text.substr(0, equals);
  const std::string_view value = text.substr(std::min(equals + 1, text.size()));
  if (cann::read_bootstrap(key, value, settings.bootstrap)) return true;
  if (key == "folder") settings.driver.folder = value;
  if (key == "version") settings.driver.version = value;
  if (key == "visible") settings.card.visible = value;
  if (key == "images") settings.images = value;
  if (key == "kernel_timeout_s") return read_number(value, settings.card.limits.kernel_s);
  if (key == "synchronise_timeout_s") return read_number(value, settings.card.limits.synchronise_s);
  if (key == "folder" || key == "version" || key == "visible" || key == "images") return true;
  if (key == "fake") settings.driver.is_fake = value == "1";
  if (key == "only") settings.only_libraries = value == "libraries";
  if (key == "fake") return value == "0" || value == "1";
  if (key == "only") return value == "libraries";
  return key == "device" && read_number(value, settings.card.device);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    result += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return result + "\"";
}

std::string hexadecimal(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string path_of(const std::string& folder, const char* name) {
  return folder + "/libpto_a2a3_" + name + ".so";
}

pto_status read_file(const std::string& folder, const char* name, std::string* bytes,
                     pto_error* error) {
  const std::string path = path_of(folder, name);
  std::ifstream file(path, std::ios::binary);
  bytes->assign(std::istreambuf_iterator<char>(file), {});
  if (!bytes->empty()) return PTO_OK;
  return fail(error, PTO_ERROR_LOAD,
              "the file %s cannot be read; set a2a3.device_folder to the folder of the libraries "
              "for the device",
              path.c_str());
}

// The stages. Each returns what it found, or fills in the error.
class Check {
 public:
  explicit Check(const Settings& settings)
      : settings_(settings), card_(driver_), aicpu_(card_), kernels_(card_, aicpu_) {}

  std::string libraries(pto_error* error) {
    if (driver_.load(settings_.driver, error) != PTO_OK) return "";
    const cann::Version version = driver_.version();
    return "CANN " + std::to_string(version.major) + "." + std::to_string(version.minor) + " in " +
           driver_.path_of("aclInit");
  }

  std::string device(pto_error* error) {
    if (card_.open(settings_.card, error) != PTO_OK) return "";
    size_t unused = 0, total = 0;
    if (card_.memory().usage(&unused, &total, error) != PTO_OK) return "";
    return std::string(driver_.functions().aclrtGetSocName()) + ", " +
           std::to_string(card_.blocks()) + " blocks, " + std::to_string(unused >> 20) + " of " +
           std::to_string(total >> 20) + " MiB free";
  }

  std::string copy(pto_error* error) {
    std::vector<uint8_t> written(kCopyBytes), read(kCopyBytes);
    std::iota(written.begin(), written.end(), uint8_t{1});
    uint64_t address = 0;
    CardMemory& memory = card_.memory();
    pto_status status = memory.allocate(kCopyBytes, &address, error);
    if (status == PTO_OK) status = memory.copy_in(address, written.data(), kCopyBytes, error);
    if (status == PTO_OK) status = memory.copy_out(read.data(), address, kCopyBytes, error);
    if (address != 0) memory.free(address, status == PTO_OK ? error : nullptr);
    if (status == PTO_OK && read != written) {
      fail(error, PTO_ERROR_LOST,
           "device %d returned other bytes than were copied to it; check the card with `npu-smi "
           "info` and reset it",
           settings_.card.device);
    }
    return std::to_string(kCopyBytes) + " bytes to the device and back";
  }

  std::string registers(pto_error* error) {
    Hardware found = {};
    read_hardware(card_, &found, error);
    return "registers at " + hexadecimal(found.registers) + ", flags of cores at " +
           hexadecimal(found.flag_base) + ", clusters " +
           (found.clusters ? hexadecimal(*found.clusters) : "unknown") + ", AICPU " +
           hexadecimal(found.processors);
  }

  std::string dispatcher(pto_error* error) {
    DeviceImages images;
    AicpuOptions options;
    options.pool_bytes = kPoolBytes;
    options.gate_timeout_ms = kGateMs;
    options.bootstrap = settings_.bootstrap;
    pto_status status = read_image("dispatcher", &images.dispatcher, error);
    if (status == PTO_OK) status = read_image("device", &images.library, error);
    if (status == PTO_OK) status = read_image("executor", &images.executor, error);
    if (status == PTO_OK) status = aicpu_.open(images, options, error);
    const pto_a2a3_status& answer = aicpu_.answer();
    return "the device library runs in process " + std::to_string(answer.process) +
           " of ELF machine " + std::to_string(answer.machine);
  }

  std::string handshake(pto_error* error) {
    std::string variant;
    uint64_t handle = 0;
    pto_status status = read_image("probe", &variant, error);
    if (status == PTO_OK) {
      status = aicpu_.load(PTO_A2A3_VARIANT, variant, nullptr, &handle, nullptr, error);
    }
    if (status == PTO_OK) status = aicpu_.attach(handle, PTO_A2A3_PROBE_VARIANT, {}, error);
    if (status == PTO_OK) run({PTO_A2A3_PROBE_MAGIC, 0, 0, 0, 0}, error);
    return "one block: its cores reported, were opened and have left";
  }

  std::string task(pto_error* error) {
    const std::string path = path_of(settings_.images, "probe_kernel");
    const pto_kernel_source source = {0,       PTO_CORE_AIV, "probe", path.c_str(),
                                      nullptr, nullptr,      nullptr};
    std::vector<uint32_t> numbers(kNumbers), read(kNumbers);
    std::iota(numbers.begin(), numbers.end(), 1u);
    const size_t bytes = kNumbers * sizeof(uint32_t);
    CardMemory& memory = card_.memory();
    pto_a2a3_probe graph = {PTO_A2A3_PROBE_MAGIC, 1, 0, 0, kNumbers};
    pto_status status = kernels_.load(source, &kernel_.address, error);
    if (status == PTO_OK) status = memory.allocate(bytes, &graph.in, error);
    if (status == PTO_OK) status = memory.allocate(bytes, &graph.out, error);
    if (status == PTO_OK) status = memory.copy_in(graph.in, numbers.data(), bytes, error);
    if (status == PTO_OK) status = run(graph, error);
    if (status == PTO_OK) status = memory.copy_out(read.data(), graph.out, bytes, error);
    for (uint32_t& number : numbers) number = 3 * number + 1;
    if (status == PTO_OK && read != numbers) {
      fail(error, PTO_ERROR_INTERNAL,
           "the task ran, but its %u numbers in device memory are wrong; report this", kNumbers);
    }
    for (const uint64_t address : {graph.in, graph.out}) {
      if (address != 0 && status == PTO_OK) status = memory.free(address, error);
    }
    return "one task on a vector core wrote " + std::to_string(bytes) + " bytes";
  }

  std::string close(pto_error* error) {
    kernels_.close();
    if (aicpu_.close(error) == PTO_OK) card_.close();
    return "the device is released";
  }

  const char* label() const { return driver_.label(); }

 private:
  pto_status read_image(const char* name, std::string* bytes, pto_error* error) const {
    return read_file(settings_.images, name, bytes, error);
  }

  // Runs a graph on one block.
  pto_status run(const pto_a2a3_probe& graph, pto_error* error) {
    pto_call_config config = {};
    config.block_dim = 1;
    config.aicpu_thread_num = 1;
    pto_run run = {};
    run.kernels = &kernel_;
    run.num_kernels = kernel_.address != 0 ? 1 : 0;
    run.config = &config;
    const auto* image = reinterpret_cast<const char*>(&graph);
    pto_status status = kernels_.prepare_run(error);
    if (status == PTO_OK) status = aicpu_.start(run, 0, {image, sizeof graph}, 0, error);
    if (status != PTO_OK) return status;
    if (aicpu_.wait(kRunNs) == PTO_PENDING) {
      aicpu_.mailbox().abort(nullptr, true);
      while (aicpu_.wait(kRunNs) == PTO_PENDING) {
      }
    }
    return aicpu_.finish(error);
  }

  const Settings& settings_;
  cann::CannDriver driver_;
  Card card_;
  AicpuDevice aicpu_;
  Kernels kernels_;
  pto_kernel_entry kernel_ = {0, PTO_CORE_AIV, 0, nullptr, nullptr};
};

bool run_stage(Check& check, const char* name, std::string (Check::*stage)(pto_error*)) {
  pto_error error;
  clear(error);
  const std::string found = (check.*stage)(&error);
  std::printf(
      "{\"stage\": \"%s\", \"label\": \"%s\", \"found\": %s, \"status\": %d, \"code\": %d, "
      "\"function\": \"%s\", \"message\": %s}\n",
      name, check.label(), quoted(found).c_str(), error.status, error.vendor_code,
      error.vendor_function, quoted(error.message).c_str());
  std::fflush(stdout);
  return error.status == PTO_OK;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int index = 1; index < argc; ++index) {
    if (read_setting(argv[index], settings)) continue;
    std::fprintf(stderr, "card_check: the setting %s is unknown or invalid\n", argv[index]);
    return 2;
  }
  Check check(settings);
  bool is_good = run_stage(check, "libraries", &Check::libraries);
  if (settings.only_libraries) return is_good ? 0 : 1;
  is_good = is_good && run_stage(check, "device", &Check::device);
  is_good = is_good && run_stage(check, "copy", &Check::copy);
  is_good = is_good && run_stage(check, "registers", &Check::registers);
  if (settings.images.empty()) return is_good ? 0 : 1;
  is_good = is_good && run_stage(check, "dispatcher", &Check::dispatcher);
  is_good = is_good && run_stage(check, "handshake", &Check::handshake);
  is_good = is_good && run_stage(check, "task", &Check::task);
  is_good = is_good && run_stage(check, "close", &Check::close);
  return is_good ? 0 : 1;
}
