#include "options.hpp"

#include <cstddef>
#include <cstring>

#include "pto/engine/latch.hpp"

namespace pto::ring_buffer {
namespace {

struct Rule {
  const char* key;
  uint64_t Options::* one;            // set if the option has one value
  uint64_t (Options::*each)[kRings];  // set if the option has a value for each ring
  uint64_t min;
  uint64_t max;
  uint64_t multiple;
  bool is_power_of_two;
  const char* unit;
};

constexpr Rule kRules[] = {
    {"task_window", nullptr, &Options::task_window, Options::kMinWindow, Options::kMaxWindow, 1,
     true, "slots"},
    {"heap", nullptr, &Options::heap, Options::kMinHeap, Options::kMaxHeap, 1024, false, "bytes"},
    {"dep_pool", nullptr, &Options::dep_pool, Options::kMinEdges, Options::kMaxEdges, 1, false,
     "entries"},
    {"ready_queue_shards", &Options::ready_queue_shards, nullptr, 1, Options::kMaxShards, 1, false,
     "shards for each core type"},
    {"tensor_map_pool", &Options::tensor_map_pool, nullptr, Options::kMinMapEntries,
     Options::kMaxMapEntries, 1, false, "entries"},
};

template <class... Parts>
pto_status refuse(pto_error* error, uint64_t value, uint64_t limit, Parts... parts) {
  engine::ErrorLatch latch;
  engine::ErrorFacts facts{PTO_ERROR_USAGE};
  facts.value = value;
  facts.limit = limit;
  latch.latch(facts, parts...);
  *error = *latch.error();
  return PTO_ERROR_USAGE;
}

const Rule* find(const char* key) {
  for (const Rule& rule : kRules) {
    if (std::strcmp(rule.key, key) == 0) return &rule;
  }
  return nullptr;
}

// Parse a decimal number that ends at a comma or at the end of the text; `end` receives this
// position. Return false for any other text.
bool parse(const char* text, const char** end, uint64_t* value) {
  const char* digit = text;
  for (*value = 0; *digit >= '0' && *digit <= '9'; ++digit) {
    if (__builtin_mul_overflow(*value, uint64_t{10}, value)) return false;
    if (__builtin_add_overflow(*value, static_cast<uint64_t>(*digit - '0'), value)) return false;
  }
  *end = digit;
  return digit != text && (*digit == '\0' || *digit == ',');
}

pto_status check(const Rule& rule, uint64_t value, const char* text, pto_error* error) {
  const bool is_power = (value & (value - 1)) == 0;
  if (value < rule.min) {
    return refuse(error, value, rule.min, rule.key, " is \"", text, "\"; the minimum is ", rule.min,
                  " ", rule.unit, rule.is_power_of_two ? ", and it must be a power of two" : "");
  }
  if (value > rule.max) {
    return refuse(error, value, rule.max, rule.key, " is \"", text, "\"; the maximum is ", rule.max,
                  " ", rule.unit);
  }
  if (rule.is_power_of_two && !is_power) {
    return refuse(error, value, rule.min, rule.key, " is \"", text,
                  "\"; it must be a power of two, and at least ", rule.min, " ", rule.unit);
  }
  if (value % rule.multiple != 0) {
    return refuse(error, value, rule.multiple, rule.key, " is \"", text,
                  "\"; it must be a multiple of ", rule.multiple, ", and at least ", rule.min, " ",
                  rule.unit);
  }
  return PTO_OK;
}

pto_status read_rule(const Rule& rule, const char* text, Options* options, pto_error* error) {
  uint64_t values[kRings];
  uint32_t count = 0;
  for (const char* rest = text;; ++rest) {
    if (count == kRings || !parse(rest, &rest, &values[count])) {
      count = 0;
      break;
    }
    const pto_status status = check(rule, values[count], text, error);
    if (status != PTO_OK) return status;
    ++count;
    if (*rest == '\0') break;
  }
  if (count != 1 && (count != kRings || rule.each == nullptr)) {
    return refuse(error, 0, rule.min, rule.key, " is \"", text, "\"; use one number of ", rule.unit,
                  rule.each != nullptr ? ", or four separated by commas, one for each ring" : "");
  }
  if (rule.each == nullptr) {
    options->*rule.one = values[0];
  } else {
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      (options->*rule.each)[ring] = values[count == 1 ? 0 : ring];
    }
  }
  return PTO_OK;
}

}  // namespace

pto_status Options::read(const pto_option* options, uint32_t count, pto_error* error) {
  for (uint32_t index = 0; index < count; ++index) {
    const Rule* rule = find(options[index].key);
    if (rule == nullptr) {
      return refuse(error, 0, 0, "tensormap_and_ringbuffer has no option \"", options[index].key,
                    "\"; its options are task_window, heap, dep_pool, ready_queue_shards and "
                    "tensor_map_pool");
    }
    const pto_status status = read_rule(*rule, options[index].value, this, error);
    if (status != PTO_OK) return status;
  }
  return PTO_OK;
}

}  // namespace pto::ring_buffer
