// The parts of the device process: registers, launches, and the socket to the driver.
#pragma once

#include <setjmp.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "device_process/protocol.h"

namespace silicon {

struct Settings {
  int socket = -1;
  uint32_t blocks = PTO_MAX_BLOCKS;
  uint32_t seed = 1;
  bool has_duplicates = false;  // AICPU threads of a launch may share a processor
  uint32_t dead_core = 0;       // its number and 1; 0: none
  uint32_t dead_threads = 0;
};

// Where the calling thread runs. The functions silicon_* and sched_getcpu() read it.
struct Place {
  uint32_t kind = 0;  // SILICON_ON_*, 0: a thread of the process itself
  uint64_t tag = 0;   // of the launch
  int processor = -1;
  uint32_t block = 0, blocks = 0, subblock = 0, physical = 0;
  uint64_t page = 0;
  uint64_t flag_base = 0, texts = 0;  // as the core has set them
  sigjmp_buf* escape = nullptr;       // from the kernel that runs
};
extern thread_local Place place;
extern bool has_plain_registers;  // a store to a register wakes no core
extern const char* folder;        // from which libraries are loaded by their names
extern const char* log_path;      // of the vendor's log; null: none

// The register pages. An access to the page of a masked core is a fault of the processor.
class Registers {
 public:
  // `masked`: a bit for each cluster that the chip does not have.
  explicit Registers(uint32_t masked);
  uint64_t base() const { return base_; }
  // Returns 0 if there is no such core.
  uint64_t page(uint32_t physical) const;
  // What an AICore launch does to the registers of a core.
  void reset(uint32_t physical);

 private:
  uint64_t base_ = 0;
  uint32_t masked_;
};

// Answers may be sent from any thread.
class Link {
 public:
  explicit Link(int socket) : socket_(socket) {}
  // Returns the number of bytes, 0 at the end. `descriptor` is -1 if none came.
  long receive(silicon_request& request, int& descriptor) const;
  template <class Answer>
  void send(const Answer& answer) const {
    send_bytes(&answer, sizeof answer);
  }
  int socket() const { return socket_; }

 private:
  void send_bytes(const void* bytes, size_t count) const;
  int socket_;
};

// The chip: what the requests of the driver reach.
class Chip {
 public:
  explicit Chip(const Settings& settings);
  // Serves requests until the driver closes the socket or asks for the end.
  void serve();

 private:
  void answer(const silicon_request& request, int descriptor);
  void map(const silicon_request& request, int descriptor);
  void load(const silicon_request& request);
  void launch_aicpu(const silicon_request& request);
  void launch_aicore(const silicon_request& request);
  silicon_info info(const silicon_request& request) const;
  std::vector<int> processors(uint32_t threads);
  void fail(const silicon_request& request, const std::string& reason) const;
  void accept(const silicon_request& request, uint64_t handle = 0) const;

  const Settings settings_;
  std::minstd_rand random_;
  const uint32_t masked_;
  Registers registers_;
  Link link_;
  std::atomic<uint32_t> launches_{0};  // that have not completed
};

// Makes a crash of a launch an answer to the driver; the process then ends with the signal.
void report_crashes(int socket);

}  // namespace silicon
