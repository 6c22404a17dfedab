#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pto::fake {

namespace {

constexpr uint64_t kZone = 64;
constexpr uint64_t kAlignment = 1024;
constexpr uint8_t kZoneByte = 0xA5;
constexpr uint8_t kNewByte = 0xCD;
constexpr uint8_t kFreedByte = 0xDD;
// Only this much at both ends of a block gets the byte of new or freed content.
constexpr uint64_t kFilled = 1 << 16;

void fill_ends(uint8_t* bytes, uint64_t count, uint8_t value) {
  const uint64_t part = std::min(count, kFilled);
  std::memset(bytes, value, part);
  std::memset(bytes + count - part, value, part);
}

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

std::string hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

Memory::Memory(uint64_t wanted, uint64_t bytes) : bytes_(bytes) {
  descriptor_ = memfd_create("pto_fake_device", MFD_CLOEXEC);
  if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    give_up("memory of the fake device");
  }
  void* device = mmap(reinterpret_cast<void*>(wanted), bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE,
                      descriptor_, 0);
  void* view =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (device == MAP_FAILED || view == MAP_FAILED) give_up("memory of the fake device");
  base_ = reinterpret_cast<uint64_t>(device);
  view_ = static_cast<uint8_t*>(view);
  unused_[base_] = bytes;
}

Memory::~Memory() {
  munmap(reinterpret_cast<void*>(base_), bytes_);
  munmap(view_, bytes_);
  close(descriptor_);
}

uint64_t Memory::allocate(uint64_t bytes) {
  const uint64_t charged = round_up(bytes, 32) + 32;
  // The block starts at 64 after a multiple of 1024; the zones are the 64 bytes on both sides.
  const uint64_t whole = round_up(kZone + charged + kZone, kAlignment);
  for (auto range = unused_.begin(); range != unused_.end(); ++range) {
    const uint64_t start = round_up(range->first, kAlignment);
    const uint64_t end = range->first + range->second;
    if (start + whole > end) continue;
    const uint64_t front = start - range->first;
    const uint64_t back = end - (start + whole);
    if (front == 0)
      unused_.erase(range);
    else
      range->second = front;
    if (back > 0) unused_[start + whole] = back;
    freed_.erase(freed_.lower_bound(start), freed_.lower_bound(start + whole));
    const uint64_t address = start + kZone;
    std::memset(view(start), kZoneByte, kZone);
    fill_ends(view(address), bytes, kNewByte);
    std::memset(view(address + bytes), kZoneByte, kZone);
    blocks_[address] = {bytes, charged, false};
    charged_ += charged;
    return address;
  }
  return 0;
}

bool Memory::free(uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  const Block block = found->second;
  check_zone(address - kZone, address, block, "before");
  check_zone(address + block.bytes, address, block, "after");
  fill_ends(view(address), block.bytes, kFreedByte);
  blocks_.erase(found);
  freed_[address] = block.bytes;
  charged_ -= block.charged;
  uint64_t start = address - kZone;
  uint64_t whole = round_up(kZone + block.charged + kZone, kAlignment);
  const auto next = unused_.find(start + whole);
  if (next != unused_.end()) {
    whole += next->second;
    unused_.erase(next);
  }
  const auto after = unused_.lower_bound(start);
  if (after != unused_.begin() && std::prev(after)->first + std::prev(after)->second == start) {
    std::prev(after)->second += whole;
  } else {
    unused_[start] = whole;
  }
  return true;
}

void Memory::release_all() {
  while (!blocks_.empty()) free(blocks_.begin()->first);
}

Block* Memory::find(uint64_t address, uint64_t bytes) {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  const auto& [start, block] = *--next;
  const uint64_t offset = address - start;
  if (offset > block.bytes || bytes > block.bytes - offset) return nullptr;
  return &next->second;
}

void Memory::check_red_zones() {
  for (const auto& [address, block] : blocks_) {
    check_zone(address - kZone, address, block, "before");
    check_zone(address + block.bytes, address, block, "after");
  }
}

void Memory::check_zone(uint64_t start, uint64_t address, const Block& block, const char* place) {
  uint8_t* zone = view(start);
  const auto is_changed = [](uint8_t byte) { return byte != kZoneByte; };
  if (std::none_of(zone, zone + kZone, is_changed)) return;
  overruns_.push_back("overrun: bytes " + std::string(place) + " the block of " +
                      std::to_string(block.bytes) + " bytes at " + hexadecimal(address) +
                      " were changed");
  std::memset(zone, kZoneByte, kZone);  // report it once
}

void Memory::list_leaks(std::vector<std::string>& findings) const {
  for (const auto& [address, block] : blocks_) {
    findings.push_back("leak: block of " + std::to_string(block.bytes) + " bytes at " +
                       hexadecimal(address));
  }
}

}  // namespace pto::fake
