#include "life/card.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <thread>

#include "abi/chip.h"
#include "cann/driver.hpp"
#include "error.hpp"

namespace pto::a2a3 {

using namespace cann;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

constexpr int kHalAttempts = 4;
constexpr std::chrono::milliseconds kHalPause{50};

constexpr size_t kProbeBytes = 4096;
constexpr uint8_t kProbeByte = 0x5A;

constexpr StreamKind kStreams[] = {StreamKind::kCore, StreamKind::kAicpu};

// Calls `query` until it returns another status than PTO_PENDING, or the time is over.
template <class Query>
pto_status repeat(int64_t timeout_ns, Query query) {
  const Clock::time_point end = Clock::now() + std::chrono::nanoseconds(timeout_ns);
  std::chrono::microseconds pause = kFirstPause;
  for (;;) {
    const pto_status status = query();
    if (status != PTO_PENDING || Clock::now() >= end) return status;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace

pto_status Card::open(const CardOptions& options, pto_error* error) {
  const auto lock = session_.lock();
  if (session_.is_selected()) {
    return fail(error, PTO_ERROR_USAGE, "device %d is open; close it first", session_.device());
  }
  limits_ = options.limits;
  if (limits_.synchronise_s <= limits_.kernel_s) {
    return fail(error, PTO_ERROR_USAGE,
                "a2a3.synchronise_timeout_s is %u and a2a3.kernel_timeout_s is %u; the first must "
                "be longer, so that the device reports a kernel that takes too long",
                limits_.synchronise_s, limits_.kernel_s);
  }
  pto_status status = find_driver_device(options.visible, options.device, &driver_device_, error);
  if (status == PTO_OK) status = session_.select(options.device, error);
  if (status != PTO_OK) return status;
  status = set_up(error);
  if (status != PTO_OK) release();
  return status;
}

// Prepares a selected device, and checks that it works: another process may have left it in a state
// in which a launch fails.
pto_status Card::set_up(pto_error* error) {
  const Functions& functions = session_.functions();
  pto_status status = session_.driver().check_chip(error);
  // Old releases lack the function, and have a limit of their own.
  uint64_t actual_us = 0;
  if (status == PTO_OK && functions.aclrtSetOpExecuteTimeOutV2.address != nullptr) {
    status = session_.call(error, functions.aclrtSetOpExecuteTimeOutV2,
                           uint64_t{limits_.kernel_s} * 1'000'000, &actual_us);
  }
  for (Handle& stream : streams_) {
    if (status == PTO_OK) status = session_.call(error, functions.aclrtCreateStream, &stream);
  }
  if (status == PTO_OK) status = find_blocks(error);
  return status == PTO_OK ? probe(error) : status;
}

// A block has one cube core and two vector cores.
pto_status Card::find_blocks(pto_error* error) {
  const auto& limit = session_.functions().aclrtGetStreamResLimit;
  uint32_t cubes = PTO_MAX_BLOCKS;
  uint32_t vectors = 2 * PTO_MAX_BLOCKS;
  pto_status status = PTO_OK;
  if (limit.address != nullptr) {
    const Handle cores = stream(StreamKind::kCore);
    status = session_.call(error, limit, cores, int32_t{kCubeCores}, &cubes);
    if (status == PTO_OK) {
      status = session_.call(error, limit, cores, int32_t{kVectorCores}, &vectors);
    }
  }
  blocks_ = std::min({cubes, vectors / 2, uint32_t{PTO_MAX_BLOCKS}});
  if (status != PTO_OK || blocks_ > 0) return status;
  return fail(error, PTO_ERROR_CAPACITY,
              "device %d offers %u cube cores and %u vector cores; a block needs 1 and 2. Remove "
              "the limit of cores, or use another device",
              session_.device(), cubes, vectors);
}

// Checks that memory, copies and streams work.
pto_status Card::probe(pto_error* error) {
  const Functions& functions = session_.functions();
  void* block = nullptr;
  uint8_t bytes[kProbeBytes] = {};
  pto_status status =
      session_.call(error, functions.aclrtMalloc, &block, kProbeBytes, int32_t{kHugeFirst});
  if (status != PTO_OK) return status;
  status = session_.call(error, functions.aclrtMemset, block, kProbeBytes, int32_t{kProbeByte},
                         kProbeBytes);
  if (status == PTO_OK) {
    status = session_.call(error, functions.aclrtMemcpy, bytes, kProbeBytes, block, kProbeBytes,
                           int32_t{kDeviceToHost});
  }
  for (const StreamKind kind : kStreams) {
    if (status == PTO_OK) status = synchronise(stream(kind), error);
  }
  pto_error* const freeing = status == PTO_OK ? error : nullptr;
  if (!session_.is_poisoned()) {
    const pto_status freed = session_.call(freeing, functions.aclrtFree, block);
    if (status == PTO_OK) status = freed;
  }
  const bool is_equal = std::all_of(std::begin(bytes), std::end(bytes),
                                    [](uint8_t byte) { return byte == kProbeByte; });
  if (status != PTO_OK || is_equal) return status;
  return fail(error, PTO_ERROR_LOST,
              "device %d returned other bytes than were written to its memory; check the card with "
              "`npu-smi info` and reset it",
              session_.device());
}

void Card::close() {
  const auto lock = session_.lock();
  if (session_.is_selected()) release();
}

// Failures have no consequence here: the next open() probes the device.
void Card::release() {
  if (!session_.is_poisoned()) session_.enter(nullptr);
  for (Handle& stream : streams_) {
    if (stream != nullptr && !session_.is_poisoned()) {
      session_.call(nullptr, session_.functions().aclrtDestroyStream, stream);
    }
    stream = nullptr;
  }
  binaries_.clear();
  session_.reset(nullptr);
}

pto_status Card::recover(pto_error* error) {
  const auto lock = session_.lock();
  if (!session_.is_selected()) return session_.enter(error);
  const pto_error cause = session_.first_failure();
  if (cause.status == PTO_OK) return PTO_OK;
  const int32_t device = session_.device();
  std::fill(std::begin(streams_), std::end(streams_), nullptr);
  binaries_.clear();
  pto_error found = {};
  pto_status status = session_.reset(&found);
  if (status == PTO_OK) status = session_.select(device, &found);
  if (status == PTO_OK) status = set_up(&found);
  if (status == PTO_OK) return PTO_OK;
  if (session_.is_selected()) release();
  return fail(error, PTO_ERROR_LOST,
              "device %d does not work after a forced reset and is closed: %.400s. The failure "
              "before the reset: %.400s",
              device, found.message, cause.message);
}

pto_status Card::lose(const pto_error& failure, pto_error* error) {
  const auto lock = session_.lock();
  return session_.lose(failure, error);
}

bool Card::is_usable() {
  const auto lock = session_.lock();
  return session_.is_selected() && !session_.is_poisoned();
}

pto_status Card::renew_core_stream(pto_error* error) {
  const auto lock = session_.lock();
  Handle& cores = streams_[static_cast<size_t>(StreamKind::kCore)];
  Handle renewed = nullptr;
  pto_status status = session_.enter(error);
  if (status == PTO_OK) status = synchronise(cores, error);
  if (status == PTO_OK) {
    status = session_.call(error, session_.functions().aclrtCreateStream, &renewed);
  }
  if (status != PTO_OK) return status;
  return session_.call(error, session_.functions().aclrtDestroyStream,
                       std::exchange(cores, renewed));
}

pto_status Card::register_cores(const void* image, size_t bytes, Handle* binary, pto_error* error) {
  const auto lock = session_.lock();
  std::string content(static_cast<const char*>(image), bytes);
  for (const auto& [registered, handle] : binaries_) {
    if (registered != content) continue;
    *binary = handle;
    return PTO_OK;
  }
  const DeviceBinary description = {kMagicAiCore, 0, image, bytes};
  pto_status status = session_.enter(error);
  if (status == PTO_OK) {
    status = session_.call(error, session_.functions().rtRegisterAllKernel, &description, binary);
  }
  if (status == PTO_OK) binaries_.emplace_back(std::move(content), *binary);
  return status;
}

pto_status Card::launch_cores(Handle binary, uint32_t blocks, const void* arguments, uint32_t bytes,
                              pto_error* error) {
  const auto lock = session_.lock();
  const pto_status status = session_.enter(error);
  if (status != PTO_OK) return status;
  const auto* start = static_cast<const uint8_t*>(arguments);
  std::vector<uint8_t> copied(start, start + bytes);
  CoreArguments described = {};
  described.args = copied.data();
  described.args_size = bytes;
  TaskSettings settings = {};
  settings.schedule_mode = kBatchSchedule;
  return session_.call(error, session_.functions().rtKernelLaunchWithHandleV2, binary, uint64_t{0},
                       blocks, &described, nullptr, stream(StreamKind::kCore), &settings);
}

pto_status Card::wait(int64_t timeout_ns, pto_error* error) {
  return repeat(timeout_ns, [&] { return query(error); });
}

pto_status Card::wait_stream(Handle stream, int64_t timeout_ns, pto_error* error) {
  return repeat(timeout_ns, [&] { return query_foreign(stream, error); });
}

// Returns PTO_PENDING while the stream works. Its owner may add work at any time, so the stream is
// never synchronised.
pto_status Card::query_foreign(Handle stream, pto_error* error) {
  const auto lock = session_.lock();
  const pto_status entered = session_.enter(error);
  if (entered != PTO_OK) return entered;
  const auto& function = session_.functions().aclrtStreamQuery;
  int32_t state = kStreamComplete;
  const Code code = function(stream, &state);
  const bool is_wrong = is_refused_handle(code);
  std::string advice =
      is_wrong
          ? "It received the stream that was passed to the run, and the run did not start. Pass "
            "a stream of this device that was not destroyed"
          : "Earlier work on the stream that was passed to the run failed, and the run did not "
            "start. Look for the failure in the program that uses the stream";
  if (is_poison(code)) advice += ", and open the device again";
  pto_error found = {};
  const pto_status status = session_.driver().check(function.name, code, &found, advice.c_str());
  if (status == PTO_OK) return state == kStreamComplete ? PTO_OK : PTO_PENDING;
  if (status == PTO_PENDING) return status;
  if (is_wrong) found.status = PTO_ERROR_USAGE;
  if (is_poison(code)) found.status = PTO_ERROR_LOST;
  return session_.report(found, error);
}

// Returns PTO_PENDING while a stream works. After a failure it is unknown whether a launch still
// runs, so the device becomes unusable.
pto_status Card::query(pto_error* error) {
  const auto lock = session_.lock();
  const auto& function = session_.functions().aclrtStreamQuery;
  pto_error failure = {};
  pto_status status = session_.enter(&failure);
  bool is_complete = true;
  for (const StreamKind kind : kStreams) {
    int32_t state = kStreamComplete;
    if (status == PTO_OK) status = session_.call(&failure, function, stream(kind), &state);
    is_complete = is_complete && state == kStreamComplete;
  }
  if (status == PTO_PENDING || (status == PTO_OK && !is_complete)) return PTO_PENDING;
  for (const StreamKind kind : kStreams) {
    if (status == PTO_OK) status = synchronise(stream(kind), &failure);
  }
  if (status == PTO_OK) return status;
  const bool is_of_this_process = session_.driver().check_process(nullptr) == PTO_OK;
  if (session_.is_selected() && is_of_this_process) session_.lose(failure, nullptr);
  if (error != nullptr) *error = failure;
  return status;
}

pto_status Card::synchronise(Handle stream, pto_error* error) {
  return session_.call(error, session_.functions().aclrtSynchronizeStreamWithTimeout, stream,
                       static_cast<int32_t>(1000 * limits_.synchronise_s));
}

namespace {

pto_status read_registers(Card& card, uint64_t* address, pto_error* error) {
  const CannDriver& driver = card.session().driver();
  const auto& function = driver.functions().halMemCtl;
  HalAddressQuery question = {kHalCoreRegisters, card.driver_device()};
  HalAddressRange range = {};
  Code code = kHalTryAgain;
  for (int attempt = 0; attempt < kHalAttempts && code == kHalTryAgain; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kHalPause);
    code = function(kHalAddressMap, &question, sizeof question, &range, nullptr);
  }
  const pto_status status = driver.check_hal(function.name, code, card.driver_device(), error);
  if (status != PTO_OK) return status;
  *address = range.address;
  // The length is a sign of a wrong answer only: where pages lie follows from abi/chip.h.
  if (range.address != 0 && range.bytes > PTO_A2A3_COND) return PTO_OK;
  return fail(error, PTO_ERROR_LOAD,
              "%s returned the address 0x%llx and %llu bytes for the registers of the cores of "
              "device %u of the driver, which is impossible; update the driver",
              function.name, static_cast<unsigned long long>(range.address),
              static_cast<unsigned long long>(range.bytes), card.driver_device());
}

pto_status read_processors(Card& card, uint64_t* mask, pto_error* error) {
  const CannDriver& driver = card.session().driver();
  const auto& function = driver.functions().halGetDeviceInfo;
  int64_t value = 0;
  const Code code = function(card.driver_device(), kHalModuleAicpu, kHalInfoOccupy, &value);
  *mask = static_cast<uint64_t>(value);
  return driver.check_hal(function.name, code, card.driver_device(), error);
}

// halGetDeviceInfo has no such query. A driver may have neither.
std::optional<uint64_t> read_clusters(Card& card) {
  const auto& function = card.session().functions().halGetDeviceInfoByBuff;
  HalUnits units = {};
  int32_t bytes = sizeof units;
  const bool has_answer =
      function.address != nullptr &&
      function(card.driver_device(), kHalModuleAicore, kHalInfoOccupy, &units, &bytes) == kSuccess;
  return has_answer && units.mask != 0 ? std::optional(units.mask) : std::nullopt;
}

pto_status read_flag_base(Card& card, uint64_t* address, pto_error* error) {
  CardSession& session = card.session();
  const auto lock = session.lock();
  uint32_t bytes = 0;
  const pto_status status = session.enter(error);
  if (status != PTO_OK) return status;
  return session.call(error, session.functions().rtGetC2cCtrlAddr, address, &bytes);
}

}  // namespace

pto_status read_hardware(Card& card, Hardware* hardware, pto_error* error) {
  pto_status status = read_registers(card, &hardware->registers, error);
  if (status == PTO_OK) status = read_processors(card, &hardware->processors, error);
  if (status == PTO_OK) status = read_flag_base(card, &hardware->flag_base, error);
  hardware->clusters = read_clusters(card);
  return status;
}

}  // namespace pto::a2a3
