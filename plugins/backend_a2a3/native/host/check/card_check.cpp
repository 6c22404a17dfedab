// Checks the libraries of CANN and one card, in stages, and writes one line of JSON for each stage.
//
//   card_check [only=libraries] [device=N] [folder=PATH] [version=TEXT] [fake=1]
//              [visible=NUMBERS]
//
// `visible` is the value of ASCEND_RT_VISIBLE_DEVICES.
// It ends after the first stage that failed, with exit code 1. It is a process of its own, because
// CANN cannot be unloaded, and because a process that has loaded it must not fork.
#include <charconv>
#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "error.hpp"
#include "life/card.hpp"

using namespace pto::a2a3;

namespace {

constexpr size_t kCopyBytes = (size_t{1} << 20) + 1;

struct Settings {
  bool only_libraries = false;
  CardOptions card;
  cann::DriverOptions driver;
};

bool read_setting(std::string_view text, Settings& settings) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string_view key = text.substr(0, equals);
  const std::string_view value = text.substr(std::min(equals + 1, text.size()));
  if (key == "folder") settings.driver.folder = value;
  if (key == "version") settings.driver.version = value;
  if (key == "visible") settings.card.visible = value;
  if (key == "folder" || key == "version" || key == "visible") return true;
  if (key == "fake") settings.driver.allow_fake = value == "1";
  if (key == "only") settings.only_libraries = value == "libraries";
  if (key == "fake") return value == "0" || value == "1";
  if (key == "only") return value == "libraries";
  const char* end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, settings.card.device);
  return key == "device" && read.ec == std::errc() && read.ptr == end;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    result += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return result + "\"";
}

// The stages. Each returns what it found, or fills in the error.
class Check {
 public:
  explicit Check(const Settings& settings) : settings_(settings), card_(driver_) {}

  std::string libraries(pto_error* error) {
    if (driver_.load(settings_.driver, error) != PTO_OK) return "";
    const cann::Version version = driver_.version();
    return "CANN " + std::to_string(version.major) + "." + std::to_string(version.minor);
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
    cann::HalAddressRange range = {};
    uint64_t clusters = 0, processors = 0;
    pto_status status = card_.core_registers(&range, error);
    if (status == PTO_OK) status = card_.occupied(cann::kHalModuleAicore, &clusters, error);
    if (status == PTO_OK) card_.occupied(cann::kHalModuleAicpu, &processors, error);
    char text[120];
    std::snprintf(text, sizeof text, "%llu bytes of registers, clusters 0x%llx, AICPU 0x%llx",
                  static_cast<unsigned long long>(range.bytes),
                  static_cast<unsigned long long>(clusters),
                  static_cast<unsigned long long>(processors));
    return text;
  }

  const char* label() const { return driver_.label(); }

 private:
  const Settings& settings_;
  cann::Driver driver_;
  Card card_;
};

bool run_stage(Check& check, const char* name, std::string (Check::*stage)(pto_error*)) {
  pto_error error;
  clear(error);
  const std::string found = (check.*stage)(&error);
  std::printf(
      "{\"stage\": \"%s\", \"label\": \"%s\", \"found\": %s, \"status\": %d, \"code\": %lld, "
      "\"message\": %s}\n",
      name, check.label(), quoted(found).c_str(), error.status, static_cast<long long>(error.value),
      quoted(error.message).c_str());
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
  return is_good ? 0 : 1;
}
