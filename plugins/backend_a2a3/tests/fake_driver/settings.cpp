#include "settings.hpp"

#include <charconv>

namespace pto::fake {

namespace {

template <class Number>
bool read_number(std::string_view text, Number* number) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, *number);
  return read.ec == std::errc() && read.ptr == end;
}

std::string* find_text(Settings& settings, std::string_view key) {
  if (key == "soc") return &settings.soc;
  if (key == "version") return &settings.version;
  if (key == "process") return &settings.process;
  if (key == "silicon") return &settings.silicon;
  return key == "libraries" ? &settings.libraries : nullptr;
}

bool read_one(Settings& settings, std::string_view key, std::string_view value) {
  uint32_t flag = 0;
  if (key == "devices") return read_number(value, &settings.devices);
  if (key == "memory_mib") return read_number(value, &settings.memory_mib);
  if (key == "operation_timeout_ms") return read_number(value, &settings.operation_timeout_ms);
  if (key == "async_copy_ms") return read_number(value, &settings.async_copy_ms);
  if (key == "streams") return read_number(value, &settings.streams);
  if (key == "cubes") return read_number(value, &settings.cubes);
  if (key == "vectors") return read_number(value, &settings.vectors);
  if (key == "register_bytes") return read_number(value, &settings.register_bytes);
  if (key == "seed") return read_number(value, &settings.seed);
  if (std::string* text = find_text(settings, key)) return *text = value, true;
  if (!read_number(value, &flag) || flag > 1) return false;
  if (key == "probe") return settings.probe = flag == 1, true;
  if (key == "clusters") return settings.has_clusters = flag == 1, true;
  return false;
}

}  // namespace

bool Settings::read(std::string_view text) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return false;
    if (!read_one(*this, item.substr(0, equals), item.substr(equals + 1))) return false;
    text.remove_prefix(std::min(text.size(), item.size() + 1));
  }
  return true;
}

}  // namespace pto::fake
