// One open device: its streams and launches, and the effects of its first failure.
//
//   open -> { memory().allocate ..., launch, wait ... }* -> close
//
// Any thread may call; the calls take turns. wait() lets other calls run between its queries.
//
// After a failure that makes the device unusable, each call returns PTO_ERROR_LOST with that first
// failure, and nothing on the device is freed. recover() resets the device by force and probes it.
// If the probe succeeds, the device is empty and usable; otherwise all calls still fail.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "life/session.hpp"

namespace pto::a2a3 {

// A launch on the cores lasts as long as its run, so both limit a run.
struct Limits {
  uint32_t kernel_s = 45;       // of one launch on the cores, by the device
  uint32_t synchronise_s = 50;  // of the wait for a launch, by the host; longer than `kernel_s`
};

struct CardOptions {
  int32_t device = 0;   // logical number
  std::string visible;  // value of ASCEND_RT_VISIBLE_DEVICES
  Limits limits;
};

enum class StreamKind : uint8_t { kAicpu, kCore };

class Card {
 public:
  explicit Card(const cann::CannDriver& driver) : session_(driver, streams_), memory_(session_) {}
  ~Card() { close(); }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  // Selects and probes the device. On error the card is closed.
  pto_status open(const CardOptions& options, pto_error* error);
  // Releases streams and device. Memory must be freed before, except on an unusable device, whose
  // forced reset frees it. Closing twice is permitted.
  void close();

  CardMemory& memory() noexcept { return memory_; }

  // Replaces the stream of the cores. Required after each change of kernel code: an older stream
  // may run what the instruction caches contain.
  pto_status renew_core_stream(pto_error* error);

  // Registers the code of the cores: once for each content while the card is open, because a second
  // registration leaks device memory.
  pto_status register_cores(const void* image, size_t bytes, cann::Handle* binary,
                            pto_error* error);
  // Starts the cores. The arguments are copied before the call returns.
  pto_status launch_cores(cann::Handle binary, uint32_t blocks, const void* arguments,
                          uint32_t bytes, pto_error* error);

  // Waits until both streams are idle; returns PTO_PENDING after `timeout_ns`. The failure of a
  // launch is returned here.
  pto_status wait(int64_t timeout_ns, pto_error* error);
  // Waits until the work on a stream of another program in this process has ended; returns
  // PTO_PENDING after `timeout_ns`. The error of a failure states that the other program caused it.
  // If the failure makes the device unusable, it is kept as the first failure.
  pto_status wait_stream(cann::Handle stream, int64_t timeout_ns, pto_error* error);

  pto_status recover(pto_error* error);

  // Makes the device unusable: it does not answer. Returns the first failure.
  pto_status lose(const pto_error& failure, pto_error* error);
  bool is_usable();

  CardSession& session() noexcept { return session_; }
  uint32_t blocks() const noexcept { return blocks_; }
  const Limits& limits() const noexcept { return limits_; }
  // The driver's number of the device; the logical one depends on what the process may see.
  uint32_t driver_device() const noexcept { return driver_device_; }
  cann::Handle stream(StreamKind kind) const noexcept {
    return streams_[static_cast<size_t>(kind)];
  }

 private:
  // These need the lock of the session.
  pto_status set_up(pto_error* error);
  pto_status find_blocks(pto_error* error);
  pto_status query(pto_error* error);
  pto_status query_foreign(cann::Handle stream, pto_error* error);
  pto_status synchronise(cann::Handle stream, pto_error* error);
  pto_status probe(pto_error* error);
  void release();

  CardSession session_;
  CardMemory memory_;
  uint32_t driver_device_ = 0;
  Limits limits_;
  uint32_t blocks_ = 0;
  cann::Handle streams_[2] = {};
  std::vector<std::pair<std::string, cann::Handle>> binaries_;  // registered code
};

// What the driver knows of the chip of an open card.
struct Hardware {
  uint64_t registers;                // address at which the registers of the cores start
  uint64_t processors;               // that the AICPU can use: a bit for each
  std::optional<uint64_t> clusters;  // a bit for each; nothing if the driver does not answer
  uint64_t flag_base;                // address for the flags between cube and vector cores
};

pto_status read_hardware(Card& card, Hardware* hardware, pto_error* error);

}  // namespace pto::a2a3
