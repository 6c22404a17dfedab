// Device memory: blocks never overlap, no memory is lost, and checking mode finds the planted
// faults.
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "memory/device_memory.hpp"

namespace {

using pto::sim::DeviceMemory;
using pto::sim::Owner;

constexpr size_t kMiB = 1 << 20;

struct Memory : DeviceMemory {
  explicit Memory(bool check, size_t bytes = 16 * kMiB) : DeviceMemory(check) {
    CHECK_EQUAL(open(bytes, nullptr), PTO_OK);
  }

  uint64_t take(size_t bytes, Owner owner = Owner::caller) {
    uint64_t address = 0;
    CHECK_EQUAL(allocate(bytes, owner, &address, &error), PTO_OK);
    return address;
  }

  pto_error error{};
};

unsigned char* bytes_at(uint64_t address) {
  return reinterpret_cast<unsigned char*>(address);
}

}  // namespace

TEST(random_buffers_never_overlap) {
  const unsigned seed = std::random_device{}();
  std::fprintf(stderr, "seed %u\n", seed);
  std::mt19937 random(seed);
  for (const bool checking : {false, true}) {
    Memory memory(checking, 4 * kMiB);
    std::map<uint64_t, size_t> live;
    for (int i = 0; i < 20'000; ++i) {
      uint64_t address = 0;
      if (live.empty() || random() % 2 == 0) {
        const size_t bytes = random() % (random() % 8 == 0 ? 300'000 : 3'000);
        if (memory.allocate(bytes, Owner::caller, &address, nullptr) != PTO_OK) continue;
        CHECK_EQUAL(address % 1024, 0u);
        const auto after = live.lower_bound(address);
        CHECK(after == live.end() || address + std::max<size_t>(bytes, 1) <= after->first);
        CHECK(after == live.begin() ||
              std::prev(after)->first + std::prev(after)->second <= address);
        live[address] = bytes;
      } else {
        auto victim = live.lower_bound(live.begin()->first + random() % (4 * kMiB));
        if (victim == live.end()) victim = live.begin();
        CHECK_EQUAL(memory.free(victim->first, nullptr), PTO_OK);
        live.erase(victim);
      }
    }
    CHECK_EQUAL(memory.leaks().buffers, live.size());
    std::vector<char> host(400'000);
    for (const auto& [address, bytes] : live) {
      const size_t offset = random() % (bytes + 1);
      const size_t rest = bytes - offset;
      CHECK_EQUAL(memory.copy_out(host.data(), address + offset, rest, nullptr), PTO_OK);
      // An empty copy at the end of a buffer is valid even if the next buffer starts there.
      if (offset < bytes || bytes == 0)
        CHECK_EQUAL(memory.copy_out(host.data(), address + offset, rest + 1, nullptr),
                    PTO_ERROR_ADDRESS);
    }
    for (const auto& [address, bytes] : live) CHECK_EQUAL(memory.free(address, nullptr), PTO_OK);
    CHECK_EQUAL(memory.leaks().buffers, 0u);
    // One allocation of the whole memory succeeds only if all free blocks were merged.
    const uint64_t whole = memory.take(4 * kMiB - (checking ? 2048 : 0));
    CHECK_EQUAL(memory.free(whole, nullptr), PTO_OK);
  }
}

// The sizes fill a level of the start map exactly, exceed it by one granule, or use only a part of
// it.
TEST(each_byte_of_the_last_block_finds_it) {
  for (const size_t granules : {1, 63, 64, 65, 100, 4096, 4097, 64 * 4096}) {
    Memory memory(false, granules * 1024);
    if (granules > 1) memory.take((granules - 1) * 1024);
    const uint64_t last = memory.take(1000);
    char byte = 0;
    CHECK_EQUAL(memory.copy_out(&byte, last, 1, nullptr), PTO_OK);
    CHECK_EQUAL(memory.copy_out(&byte, last + 999, 1, nullptr), PTO_OK);
    CHECK_EQUAL(memory.free(last, nullptr), PTO_OK);
  }
}

TEST(exhaustion_reports_requested_and_free_bytes) {
  Memory memory(false, kMiB);
  memory.take(kMiB / 2);
  uint64_t address = 0;
  CHECK_EQUAL(memory.allocate(kMiB, Owner::run, &address, &memory.error), PTO_ERROR_MEMORY);
  CHECK_EQUAL(memory.error.value, kMiB);
  CHECK(std::strstr(memory.error.message, "1048576") != nullptr);
  CHECK(std::strstr(memory.error.message, "524288") != nullptr);
  CHECK_EQUAL(memory.allocate(~size_t{0}, Owner::run, &address, nullptr), PTO_ERROR_MEMORY);
}

// Invariant: The end of a run frees the device memory that the run allocated. Memory of the caller
// stays until it is freed, and close() reports it.
TEST(the_end_of_a_run_frees_only_its_buffers) {
  Memory memory(false);
  const uint64_t kept = memory.take(100);
  memory.begin_run();
  memory.take(1000, Owner::run);
  const uint64_t freed = memory.take(2000, Owner::run);
  CHECK_EQUAL(memory.free(freed, nullptr), PTO_OK);
  memory.take(0, Owner::run);
  CHECK_EQUAL(memory.peak_bytes(), 3100u);
  memory.end_run();
  memory.begin_run();
  CHECK_EQUAL(memory.peak_bytes(), 100u);
  const pto_leak_report leaks = memory.leaks();
  CHECK_EQUAL(leaks.buffers, 1u);
  CHECK_EQUAL(leaks.bytes, 100u);
  CHECK_EQUAL(leaks.first_address, kept);
  CHECK_EQUAL(leaks.first_bytes, 100u);
}

TEST(empty_buffers_are_unique) {
  Memory memory(true);
  CHECK(memory.take(0) != memory.take(0));
}

TEST(copies_are_counted_and_bounded) {
  Memory memory(false);
  const uint64_t address = memory.take(100);
  memory.begin_run();
  int values[4] = {1, 2, 3, 4};
  int back[4] = {};
  CHECK_EQUAL(memory.copy_in(address, values, sizeof values, nullptr), PTO_OK);
  CHECK_EQUAL(memory.copy_out(back, address, sizeof back, nullptr), PTO_OK);
  CHECK_EQUAL(back[3], 4);
  CHECK_EQUAL(memory.copies().bytes_in, 16u);
  CHECK_EQUAL(memory.copies().copies_out, 1u);
  CHECK_EQUAL(memory.copy_in(1, values, 4, &memory.error), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(memory.copy_out(back, address, 64 * kMiB, &memory.error), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(memory.copy_out(back, address, ~size_t{0}, &memory.error), PTO_ERROR_ADDRESS);
}

TEST(copies_stay_inside_one_live_buffer) {
  for (const bool check : {false, true}) {
    Memory memory(check);
    const uint64_t address = memory.take(64);
    const uint64_t neighbour = memory.take(5'000'000);
    unsigned char host[4096] = {};
    *bytes_at(neighbour) = 7;
    CHECK_EQUAL(memory.copy_in(address, host, sizeof host, &memory.error), PTO_ERROR_ADDRESS);
    CHECK_EQUAL(*bytes_at(neighbour), 7);
    CHECK_EQUAL(memory.error.value, sizeof host);
    CHECK_EQUAL(memory.error.limit, 64u);
    CHECK(std::strstr(memory.error.message, "4096 bytes to 0x") != nullptr);
    CHECK(std::strstr(memory.error.message, "byte 0 of a buffer of 64 bytes") != nullptr);
    CHECK_EQUAL(memory.copy_out(host, address + 4, 61, &memory.error), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(memory.error.message, "copy at most 60") != nullptr);
    CHECK_EQUAL(memory.copy_out(host, address + 4, 60, nullptr), PTO_OK);
    CHECK_EQUAL(memory.copy_in(neighbour + 4'999'999, host, 1, nullptr), PTO_OK);
    CHECK_EQUAL(memory.copy_in(neighbour + 5'000'000, host, 1, nullptr), PTO_ERROR_ADDRESS);
    CHECK_EQUAL(memory.copy_in(neighbour + 5'000'000, host, 0, nullptr), PTO_OK);
    CHECK_EQUAL(memory.free(address, nullptr), PTO_OK);
    CHECK_EQUAL(memory.copy_in(address, host, 1, &memory.error), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(memory.error.message, "no live buffer of the device contains") != nullptr);
  }
}

TEST(wrong_frees_are_refused) {
  for (const bool check : {false, true}) {
    Memory memory(check);
    const auto is_refused = [&](uint64_t wrong, const char* reason) {
      CHECK_EQUAL(memory.free(wrong, &memory.error), PTO_ERROR_ADDRESS);
      CHECK(std::strstr(memory.error.message, reason) != nullptr);
    };
    const uint64_t address = memory.take(5000);
    is_refused(address + 1024, "no live buffer starts there");
    is_refused(address + 1, "no live buffer starts there");
    is_refused(8, "it is not device memory");
    CHECK_EQUAL(memory.free(address, nullptr), PTO_OK);
    is_refused(address, check ? "it was freed already" : "no live buffer starts there");
  }
}

TEST(writes_outside_a_buffer_are_reported) {
  for (const int64_t offset : {-1024, -1, 100, 1000, 2047}) {
    Memory memory(true);
    const uint64_t address = memory.take(100);
    CHECK_EQUAL(memory.check_all(&memory.error), PTO_OK);
    ++*bytes_at(address + static_cast<uint64_t>(offset));
    CHECK_EQUAL(memory.check_buffer(address + 50, &memory.error), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(memory.error.message, std::to_string(offset).c_str()) != nullptr);
    CHECK_EQUAL(memory.error.value, address);
    CHECK_EQUAL(memory.check_all(nullptr), PTO_ERROR_ADDRESS);
    CHECK_EQUAL(memory.free(address, nullptr), PTO_ERROR_ADDRESS);
    CHECK_EQUAL(memory.check_all(nullptr), PTO_OK);
  }
}

TEST(the_first_byte_written_outside_is_reported) {
  for (const unsigned char written : {0x00, 0x3f, 0x80, 0xa7, 0xcb, 0xdf, 0xff}) {
    uint32_t exact = 0;
    for (size_t bytes = 100; bytes < 200; ++bytes) {
      Memory memory(true);
      const uint64_t address = memory.take(bytes);
      std::memset(bytes_at(address + bytes), written, 16);
      CHECK_EQUAL(memory.check_all(&memory.error), PTO_ERROR_ADDRESS);
      const std::string first = "byte " + std::to_string(bytes) + " of the buffer";
      exact += std::strstr(memory.error.message, first.c_str()) != nullptr;
    }
    // of 100 writes; the others happen to write the value that the byte already had
    CHECK(exact >= 90);
  }
}

TEST(writes_to_freed_buffers_are_reported) {
  Memory memory(true);
  const uint64_t address = memory.take(100);
  CHECK_EQUAL(memory.free(address, nullptr), PTO_OK);
  CHECK_EQUAL(memory.check_all(nullptr), PTO_OK);
  *bytes_at(address + 99) = 1;
  CHECK_EQUAL(memory.check_all(&memory.error), PTO_ERROR_ADDRESS);
  CHECK(std::strstr(memory.error.message, "freed") != nullptr);
}

TEST(check_value_refuses_wrong_pointers) {
  Memory memory(true);
  const uint64_t live = memory.take(3000);
  const uint64_t gone = memory.take(3000);
  CHECK_EQUAL(memory.free(gone, nullptr), PTO_OK);
  const int host[4] = {};
  const pto_host_range range{reinterpret_cast<uint64_t>(host), sizeof host};
  const auto check = [&](uint64_t value) {
    return memory.check_value(value, &range, 1, &memory.error);
  };
  CHECK_EQUAL(check(0), PTO_OK);
  CHECK_EQUAL(check(42), PTO_OK);
  CHECK_EQUAL(check(live), PTO_OK);
  CHECK_EQUAL(check(live + 2999), PTO_OK);
  CHECK_EQUAL(check(live + 3001), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(check(live - 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(check(gone), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(check(live + kMiB), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(check(range.address + 8), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(check(range.address + sizeof host), PTO_OK);
}

TEST(check_range_requires_one_live_buffer) {
  Memory memory(true);
  const uint64_t live = memory.take(3000);
  const uint64_t gone = memory.take(3000);
  CHECK_EQUAL(memory.free(gone, nullptr), PTO_OK);
  const int host[4] = {};
  const pto_host_range range{reinterpret_cast<uint64_t>(host), sizeof host};
  const auto check = [&](uint64_t address, size_t bytes) {
    return memory.check_range(address, bytes, &range, 1, &memory.error);
  };
  CHECK_EQUAL(check(live, 3000), PTO_OK);
  CHECK_EQUAL(check(live + 2999, 1), PTO_OK);
  CHECK_EQUAL(check(live + 100, 2901), PTO_ERROR_ADDRESS);
  CHECK(std::strstr(memory.error.message,
                    "buffer of 3000 bytes, in which the address has the offset 100") != nullptr);
  CHECK(std::strstr(memory.error.message, "at most 2900") != nullptr);
  CHECK_EQUAL(check(live, SIZE_MAX), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(check(0x1234, 64), PTO_ERROR_ADDRESS);
  CHECK(std::strstr(memory.error.message, "0x1234 is not an address of device memory") != nullptr);
  CHECK_EQUAL(check(gone, 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(check(range.address, 8), PTO_ERROR_ADDRESS);
  CHECK(std::strstr(memory.error.message, "host memory") != nullptr);
}

TEST(quarantined_buffers_are_reused_when_memory_is_short) {
  Memory memory(true, kMiB);
  for (int i = 0; i < 10; ++i) CHECK_EQUAL(memory.free(memory.take(kMiB / 2), nullptr), PTO_OK);
}

int main(int argc, char** argv) {
  return check::run(argc, argv);
}
