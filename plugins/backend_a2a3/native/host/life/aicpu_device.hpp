// The device library of one open card, as the host uses it: commands, runs, and their answers.
//
//   open -> load, attach -> { start -> wait -> finish }* -> detach, unload -> close
//
// abi/launch.h describes the commands. One thread at a time calls; any thread may use the mailbox.
// A command or run that loses the device makes the card unusable: then only close() is permitted,
// before Card::recover() or Card::close().
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/launch.h"
#include "life/aicpu.hpp"
#include "life/card.hpp"
#include "life/session.hpp"
#include "life/texts.hpp"

namespace pto::a2a3 {

// The messages between host and device during a run: requests to end the run, and explanations.
//
// It uses pto_a2a3_control, which the host writes, and pto_a2a3_progress, which the device writes.
// Any thread may call.
class RunMailbox {
 public:
  explicit RunMailbox(Card& card) : card_(card) {}

  // Clears the block of the host. The addresses are those of both blocks in device memory.
  pto_status open(uint64_t control, uint64_t progress, pto_error* error);

  // A run begins with the sequence number of its launch, and ends.
  void begin(uint64_t sequence);
  void end();

  // Ends the run early. With `abandons`, the device does not wait for running kernels.
  void abort(const pto_error* cause, bool abandons);
  // Returns whether the device has not ended an abandoned run in time.
  bool is_overdue();
  // Writes a description of the run to `text`. If the device does not answer soon, the text is the
  // previous description, and its first line states that. Returns false if there is no run.
  bool explain(std::string& text);
  // Tells the device how many messages of its log the host has read.
  void set_log_read(uint64_t count);

 private:
  std::string ask();

  Card& card_;
  uint64_t control_ = 0;
  uint64_t progress_ = 0;
  std::mutex mutex_;  // of the members below
  pto_a2a3_control asked_ = {};
  uint64_t run_ = 0;             // sequence of the current run; 0: none
  int64_t abandoned_at_ns_ = 0;  // 0: not abandoned
};

// The contents of the files that run on the device.
struct DeviceImages {
  std::string dispatcher;
  std::string library;
  std::string executor;
};

struct AicpuOptions {
  uint64_t pool_bytes = uint64_t{256} << 20;  // device memory of the variant and its runs
  uint32_t flags = PTO_A2A3_PLANNING;         // what the device may do
  LogSettings log;
  cann::BootstrapNames bootstrap;  // the names that replace those of the release
  uint32_t gate_timeout_ms = 10'000;
};

class AicpuDevice {
 public:
  explicit AicpuDevice(Card& card) : card_(card), mailbox_(card), answer_(new pto_a2a3_status{}) {}
  ~AicpuDevice() { close(nullptr); }
  AicpuDevice(const AicpuDevice&) = delete;
  AicpuDevice& operator=(const AicpuDevice&) = delete;

  // Installs the libraries and initialises the device. On error the device is closed.
  pto_status open(const DeviceImages& images, const AicpuOptions& options, pto_error* error);
  // Frees all that the device holds. A card that is unusable is only forgotten: its forced reset
  // frees everything. Closing twice is permitted.
  pto_status close(pto_error* error);
  // Returns whether the device can search for sufficient sizes after a deadlock.
  bool has_planning() const noexcept { return has_planning_; }

  // Loads a library on the device. `kind` is PTO_A2A3_VARIANT, ..._ORCHESTRATION or ..._KERNEL;
  // `address` is the address of a kernel's symbol.
  pto_status load(uint32_t kind, const std::string& file, const char* symbol, uint64_t* handle,
                  uint64_t* address, pto_error* error);
  pto_status unload(uint64_t handle, pto_error* error);
  // After success answer() has the capabilities of the variant.
  pto_status attach(uint64_t library, const char* variant, std::span<const pto_option> options,
                    pto_error* error);
  pto_status detach(pto_error* error);

  // Starts a run of an orchestration, which is a handle of load(), or of a graph that an instance
  // on the host has exported. `dump` is the address of a pto_a2a3_dump, or 0.
  pto_status start(const pto_run& run, uint64_t orchestration, std::span<const char> graph,
                   uint64_t dump, pto_error* error);
  // Returns PTO_OK when the run has ended, even if it failed, and PTO_PENDING after `timeout_ns`.
  pto_status wait(int64_t timeout_ns);
  // Returns the outcome of the run. Then answer() has its report and its statistics.
  pto_status finish(pto_error* error);
  // Aborts and explains the current run. An abandoned run makes the card unusable.
  RunMailbox& mailbox() noexcept { return mailbox_; }
  KernelTexts& texts() noexcept { return *texts_; }

  // The answer to the newest command that has ended.
  const pto_a2a3_status& answer() const noexcept { return *answer_; }

 private:
  pto_status install(const DeviceImages& images, const cann::BootstrapNames& replaced,
                     pto_error* error);
  pto_status allocate(size_t bytes, uint64_t* address, pto_error* error);
  pto_status allocate_blocks(pto_a2a3_device& device, pto_error* error);
  pto_status initialise(const AicpuOptions& options, pto_error* error);
  pto_status find_hardware(pto_a2a3_device& device, pto_error* error);

  pto_status command(uint32_t command, const void* input, size_t bytes, uint64_t handle,
                     pto_error* error);
  pto_status put_input(const void* bytes, size_t count, pto_error* error);
  pto_a2a3_launch describe(uint32_t command, size_t bytes, uint64_t handle);
  pto_status read_answer(pto_error* error);

  pto_status launch(const pto_run& run, uint64_t orchestration, uint64_t graph_bytes, uint64_t dump,
                    pto_error* error);
  bool has_lost_answer();

  Card& card_;
  RunMailbox mailbox_;
  DeviceLog log_;
  std::optional<KernelTexts> texts_;  // without a value: the device is not open
  std::optional<AicpuLibrary> library_;
  cann::Handle serve_ = nullptr;          // the function of the device library
  cann::Handle executor_ = nullptr;       // the code of the cores
  std::vector<uint64_t> blocks_;          // device memory that close() frees
  uint64_t status_ = 0;                   // address of a pto_a2a3_status
  uint64_t cores_ = 0;                    // address of a pto_a2a3_cores
  uint64_t progress_ = 0;                 // address of a pto_a2a3_progress
  uint64_t input_ = 0, input_bytes_ = 0;  // grows
  uint64_t graph_ = 0;                    // of the current run
  uint64_t flag_base_ = 0;                // for the flags between cores
  uint32_t threads_ = 0;                  // AICPU threads of a run
  bool has_planning_ = false;
  uint64_t device_ = 0;  // handle of the device library; 0: not initialised
  uint64_t sequence_ = 0, core_launch_ = 0;
  int64_t latest_end_ns_ = 0;  // of the current run
  std::unique_ptr<pto_a2a3_status> answer_;
  pto_error failure_ = {};  // of the current run, from the driver
};

// Adds the tasks that were on the cores when a run lost its device to the message of the failure;
// the blocks are copies of the host. If there is one task, and a failed kernel can be the cause,
// the members of the failure name it.
void add_in_flight(const pto_a2a3_progress& progress, const pto_a2a3_cores& cores,
                   pto_error& failure);

// The same with the blocks at these device addresses, if the driver still copies memory.
void name_in_flight(CardSession& session, uint64_t progress, uint64_t cores, pto_error& failure);

}  // namespace pto::a2a3
