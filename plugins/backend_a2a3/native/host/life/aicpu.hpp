// Our library on the AICPU of one open card: its installation and its launches.
//
// CANN runs the dispatcher, a small library of ours, through an entry of its own. The dispatcher
// writes the inner library to a file on the device, whose name follows from the bytes and the
// device (abi/dispatcher.h); after that, functions of the inner library are launched by name. The
// AICPU of a host process keeps the first inner library that it received.
#pragma once

#include <string>

#include "cann/driver.hpp"
#include "life/card.hpp"

namespace pto::a2a3 {

struct AicpuImages {
  const void* dispatcher;
  size_t dispatcher_bytes;
  const void* inner;
  size_t inner_bytes;
};

class AicpuLibrary {
 public:
  explicit AicpuLibrary(Card& card) : card_(card) {}

  // Installs the library, and waits until the dispatcher has ended. The images are only read during
  // the call.
  pto_status install(const cann::BootstrapNames& names, const AicpuImages& images,
                     pto_error* error);
  // Finds a function of the inner library. The handle is valid until the card is closed.
  pto_status find(const std::string& symbol, cann::Handle* function, pto_error* error);
  // Starts a function on AICPU threads. The arguments are copied before the call returns.
  pto_status launch(cann::Handle function, uint32_t threads, const void* arguments, uint32_t bytes,
                    pto_error* error);
  // Unloads what find() loaded, and frees what a failed install() left for the dispatcher. The card
  // must be idle. After an error, the rest can be unloaded later. On an unusable device, a forced
  // reset does the same; do not use this object afterwards.
  pto_status unload(pto_error* error);

 private:
  pto_status upload(const void* bytes, size_t count, uint64_t* address, pto_error* error);
  pto_status start_dispatcher(const cann::BootstrapNames& names, uint64_t block, pto_error* error);
  pto_status wait_for_dispatcher(pto_error* error);
  pto_status free_blocks(pto_error* error);

  Card& card_;
  std::string file_;
  std::vector<uint64_t> blocks_;  // that the dispatcher reads
  std::vector<cann::Handle> binaries_;
};

}  // namespace pto::a2a3
