// Writes messages of a runtime to standard error, for all backends in one form.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

#include "pto/abi/platform.h"

namespace pto::host {

namespace log_parts {

// Returns the length of the UTF-8 sequence at the start of `text`; 0 if the bytes are not UTF-8.
inline size_t sequence_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length > text.size()) return 0;
  const auto is_continuation = [](char byte) { return (byte & 0xC0) == 0x80; };
  return std::all_of(text.begin() + 1, text.begin() + length, is_continuation) ? length : 0;
}

// Escapes `text` for JSON. Invalid UTF-8 is replaced: messages come from programs and are cut at a
// fixed size, so they may contain any bytes.
inline std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const char first = text[0];
    if (length == 0) {
      result += "\\ufffd";
    } else if (static_cast<unsigned char>(first) < ' ') {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", first);
      result += code;
    } else {
      if (first == '"' || first == '\\') result += '\\';
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

inline std::string time_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[40];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%06ldZ", now.tv_nsec / 1000);
  return text;
}

}  // namespace log_parts

// Writes a message as text, or as one line of JSON with the keys of the core's log. `level` is
// PTO_LOG_*.
inline void write_log(int32_t level, const char* message, bool is_json) {
  if (!is_json) {
    constexpr const char* kNames[] = {"", "error: ", "warning: ", "info: ", "debug: "};
    std::fprintf(stderr, "pto: %s%s\n", kNames[level - PTO_LOG_ALWAYS], message);
    return;
  }
  constexpr const char* kLevels[] = {"info", "error", "warn", "info", "debug"};
  const std::string line = "{\"event\": \"message\", \"logger\": \"runtime\", \"text\": \"" +
                           log_parts::escaped(message) + "\", \"level\": \"" +
                           kLevels[level - PTO_LOG_ALWAYS] + "\", \"timestamp\": \"" +
                           log_parts::time_now() + "\"}\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace pto::host
