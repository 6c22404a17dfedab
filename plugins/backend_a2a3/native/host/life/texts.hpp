// The reader of what kernels print: a ring in device memory for each core (pto_a2a3_texts).
//
// One thread at a time calls. The cores write at any time. A failure of the driver has no
// consequence here: its next call returns it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "abi/launch.h"
#include "life/session.hpp"
#include "pto/host/kernel_log.hpp"

namespace pto::a2a3 {

class KernelTexts {
 public:
  KernelTexts(CardSession& session, bool is_json)
      : session_(session), memory_(session), log_(session.device(), is_json) {}

  // A kernel that prints was loaded. The first one gets memory for the rings, which the caller of
  // address() frees.
  pto_status add(uint64_t kernel, const char* name, pto_error* error);
  // The address of the rings; 0: no kernel prints.
  uint64_t address() const noexcept { return address_; }
  // Of the runtime.
  void set_capabilities(uint32_t capabilities) { capabilities_ = capabilities; }
  void begin_run(uint32_t blocks) {
    cores_ = 3 * blocks;
    log_.begin_run(blocks, capabilities_);
  }

  // Shows the new texts on standard error.
  void read();
  // The same on an unusable device, if the driver still copies memory.
  void salvage();

 private:
  struct Seen {
    uint64_t read = 0, dropped = 0;
  };

  uint64_t ring(uint32_t core) const { return address_ + core * sizeof(pto_a2a3_texts); }
  void show(uint32_t core);

  CardSession& session_;
  CardMemory memory_;
  host::KernelLog log_;
  std::map<uint64_t, std::string> names_;
  uint64_t address_ = 0;
  uint32_t capabilities_ = 0;
  uint32_t cores_ = 0;  // of the run
  std::array<Seen, PTO_MAX_CORES> seen_;
  std::unique_ptr<pto_a2a3_texts> copy_{new pto_a2a3_texts{}};  // of one ring
};

}  // namespace pto::a2a3
