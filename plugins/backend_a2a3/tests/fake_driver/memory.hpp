// Device memory of the fake driver: one range of addresses that the host process cannot access.
//
// The range is mapped twice: at its device addresses without any permission, so that a host
// dereference of a device address crashes, and at the view, which only copies of the driver use.
// A block starts at a multiple of 64 that is no multiple of 1024; new content is 0xCD, freed
// content 0xDD; 64 bytes before and after it are a red zone.
//
// Callers hold the mutex of the driver, except in view().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pto::fake {

struct Block {
  uint64_t bytes = 0;       // as the host requested
  uint64_t charged = 0;     // as the vendor counts: rounded up to 32, plus 32
  bool is_written = false;  // the host or a launch wrote to it
};

class Memory {
 public:
  // Starts at `wanted` if these addresses are free; the device process needs them, too.
  Memory(uint64_t wanted, uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns an address, or 0 if no range is large enough.
  uint64_t allocate(uint64_t bytes);
  // Returns whether `address` is the base of a live block. Damaged red zones become findings.
  bool free(uint64_t address);
  // Frees all blocks, as a forced reset does.
  void release_all();
  bool was_freed(uint64_t address) const { return freed_.contains(address); }

  bool contains(uint64_t address) const { return address - base_ < bytes_; }
  // Returns the live block that contains the bytes, or null.
  Block* find(uint64_t address, uint64_t bytes);
  // Returns the host's view of device bytes.
  uint8_t* view(uint64_t address) const { return view_ + (address - base_); }

  void check_red_zones();
  void list_leaks(std::vector<std::string>& findings) const;
  std::vector<std::string>& overruns() { return overruns_; }

  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t free_bytes() const { return bytes_ - charged_; }
  int descriptor() const { return descriptor_; }

 private:
  void check_zone(uint64_t start, uint64_t address, const Block& block, const char* place);

  uint64_t base_ = 0;
  uint64_t bytes_;
  uint8_t* view_ = nullptr;
  int descriptor_ = -1;
  uint64_t charged_ = 0;
  std::map<uint64_t, Block> blocks_;     // by address
  std::map<uint64_t, uint64_t> unused_;  // start and length of each unused range
  std::map<uint64_t, uint64_t> freed_;   // address and bytes of freed blocks, until they are reused
  std::vector<std::string> overruns_;
};

}  // namespace pto::fake
