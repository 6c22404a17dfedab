// One open device: streams, launches, and what follows its first failure.
//
//   open -> { memory().allocate ..., launch, wait ... }* -> close
//
// Any thread may call; the calls take turns. wait() lets others in between its queries.
//
// After a failure that makes the device unusable, each call returns PTO_ERROR_LOST with that first
// failure, and nothing on the device is freed. recover() resets the device by force and probes it:
// then it is empty and usable, or it stays refused.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "life/memory.hpp"

namespace pto::a2a3 {

struct CardOptions {
  int32_t device = 0;   // logical number
  std::string visible;  // value of ASCEND_RT_VISIBLE_DEVICES
};

enum class StreamKind : uint8_t { kAicpu, kCore };

class Card {
 public:
  explicit Card(const cann::Driver& driver) : session_(driver, streams_), memory_(session_) {}
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

  // Waits until both streams are idle; returns PTO_PENDING after `timeout_ns`. Launches have no
  // limit of their own. The failure of a launch is returned here.
  pto_status wait(int64_t timeout_ns, pto_error* error);
  // Waits until the work on a stream of another program in this process has ended; returns
  // PTO_PENDING after `timeout_ns`. A failure is that program's, and the error says so; if it makes
  // the device unusable, it is kept as the first failure.
  pto_status wait_stream(cann::Handle stream, int64_t timeout_ns, pto_error* error);

  pto_status recover(pto_error* error);

  // Makes the device unusable: it does not answer. Returns the first failure.
  pto_status lose(const pto_error& failure, pto_error* error);
  bool is_usable();

  // The address range of the cores' registers, and the mask of the units that exist.
  pto_status core_registers(cann::HalAddressRange* range, pto_error* error) const;
  pto_status occupied(int32_t module, uint64_t* mask, pto_error* error) const;

  Session& session() noexcept { return session_; }
  uint32_t blocks() const noexcept { return blocks_; }
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

  Session session_;
  CardMemory memory_;
  uint32_t driver_device_ = 0;
  uint32_t blocks_ = 0;
  cann::Handle streams_[2] = {};
  std::vector<std::pair<std::string, cann::Handle>> binaries_;  // registered code
};

}  // namespace pto::a2a3
