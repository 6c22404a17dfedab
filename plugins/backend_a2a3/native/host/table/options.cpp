#include "table/options.hpp"

#include <charconv>
#include <iterator>
#include <string_view>

#include "error.hpp"

namespace pto::a2a3 {

namespace {

constexpr std::string_view kLogLevels[] = {"error", "warn", "info",
                                           "debug"};  // in the order of PTO_LOG_*

constexpr uint64_t kLongestS = 1'000'000;

bool read_switch(std::string_view text, bool& value) {
  value = text == "1" || text == "true";
  return value || text == "0" || text == "false";
}

// Reads a whole number from 1 on.
template <class Number>
bool read_count(std::string_view text, Number& value, uint64_t most) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && value >= 1 &&
         value <= most;
}

bool read_mib(std::string_view text, uint64_t& bytes) {
  constexpr uint64_t kMostMib = uint64_t{1} << 20;
  uint64_t mib = 0;
  const bool is_valid = read_count(text, mib, kMostMib);
  bytes = mib << 20;
  return is_valid;
}

bool read_log_level(std::string_view text, int32_t& level) {
  for (size_t index = 0; index < std::size(kLogLevels); ++index) {
    if (kLogLevels[index] != text) continue;
    level = static_cast<int32_t>(index);
    return true;
  }
  return false;
}

pto_status parse_option(std::string_view key, std::string_view value, Options& options,
                        pto_error* error) {
  bool is_valid = true;
  if (key == "folder") {
    options.driver.folder = value;
  } else if (key == "version") {
    options.driver.version = value;
  } else if (key == "images") {
    options.images = value;
  } else if (key == "dispatcher") {
    options.dispatcher = value;
  } else if (key == "device") {
    options.device = value;
  } else if (key == "executor") {
    options.executor = value;
  } else if (key == "visible") {
    options.visible = value;
  } else if (key == "fake") {
    is_valid = read_switch(value, options.driver.is_fake);
  } else if (key == "pool_mib") {
    is_valid = read_mib(value, options.pool_bytes);
  } else if (key == "kernel_timeout_s") {
    is_valid = read_count(value, options.limits.kernel_s, kLongestS);
  } else if (key == "synchronise_timeout_s") {
    is_valid = read_count(value, options.limits.synchronise_s, kLongestS);
  } else if (key == "log_level") {
    is_valid = read_log_level(value, options.log.level);
  } else if (key == "log_format") {
    options.log.is_json = value == "json";
    is_valid = options.log.is_json || value == "text";
  } else if (!cann::read_bootstrap(key, value, options.bootstrap)) {
    return fail(error, PTO_ERROR_USAGE,
                "the backend has no option \"%.*s\"; it knows folder, version, images, "
                "dispatcher, device, executor, visible, fake, pool_mib, kernel_timeout_s, "
                "synchronise_timeout_s, log_level, log_format, bootstrap_operation, "
                "bootstrap_kernel, bootstrap_library",
                static_cast<int>(key.size()), key.data());
  }
  if (is_valid) return PTO_OK;
  return fail(error, PTO_ERROR_USAGE, "option %.*s has the invalid value \"%.*s\"",
              static_cast<int>(key.size()), key.data(), static_cast<int>(value.size()),
              value.data());
}

}  // namespace

pto_status parse_options(const pto_option* given, uint32_t count, Options& options,
                         pto_error* error) {
  for (uint32_t index = 0; index < count; ++index) {
    const pto_status status = parse_option(given[index].key, given[index].value, options, error);
    if (status != PTO_OK) return status;
  }
  return PTO_OK;
}

}  // namespace pto::a2a3
