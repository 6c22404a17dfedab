// The dump of one run (pto/abi/dump.h): what the device shall record, and the file of the records.
//
// One thread at a time calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/launch.h"
#include "life/card.hpp"
#include "life/kernels.hpp"
#include "pto/abi/dump.h"

namespace pto::a2a3 {

class RunDump {
 public:
  RunDump(Card& card, const Kernels& kernels) : card_(card), kernels_(kernels) {}

  // Opens the file that the configuration names, and passes its selection to the device. `buffers`
  // is the memory of the program. The dump before it has ended.
  pto_status begin(const pto_call_config& config, std::vector<pto_a2a3_range> buffers,
                   pto_error* error);
  // Of a pto_a2a3_dump; 0: the run is not dumped.
  uint64_t address() const noexcept { return address_; }
  // The run has ended, or does not start: writes the records to the file, also those of a device
  // that is lost, if its memory can be read. Ending twice is permitted.
  void end() noexcept;

 private:
  pto_status open(const char* path, std::string& names, pto_error* error);
  pto_status pass(std::vector<char>& input, const pto_a2a3_dump& head, pto_error* error);
  bool copy_out(void* host, uint64_t address, uint64_t bytes);
  void write_file() noexcept;
  void append(pto_dump_record head, const char* record, bool is_hashed);
  // Keeps the first error. Without a lost record, an unknown number of records is missing.
  void note(uint32_t error) noexcept;

  Card& card_;
  const Kernels& kernels_;
  int file_ = -1;
  pto_dump_header header_ = {};
  uint64_t written_ = 0;  // bytes of records in the file
  uint64_t address_ = 0;
  uint64_t records_ = 0;  // address of the first record
};

}  // namespace pto::a2a3
