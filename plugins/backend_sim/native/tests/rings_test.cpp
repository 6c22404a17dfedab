// Rings: device memory that a runtime keeps between runs, and the buffers that the runtime lends
// from its rings.
#include <unistd.h>

#include <string>

#include "device_fixture.hpp"

namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kGiB = 1024 * kMiB;

unsigned char* bytes_at(uint64_t address) {
  return reinterpret_cast<unsigned char*>(address);
}

// Returns the number of resident pages of this process.
size_t resident_bytes() {
  size_t pages = 0;
  size_t resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  CHECK(file != nullptr && std::fscanf(file, "%zu %zu", &pages, &resident) == 2);
  std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

struct Rings : Fixture {
  explicit Rings(const char* check = "0", const char* mode = "threads")
      : Fixture({{"mode", mode}, {"check", check}, {"workers", "1"}}),
        platform(runtime->platform()) {}

  uint64_t ring(size_t bytes) {
    uint64_t address = 0;
    CHECK_EQUAL(platform.allocate_ring(platform.self, bytes, &address), PTO_OK);
    CHECK_EQUAL(address % kKiB, 0u);
    return address;
  }
  pto_status lend(uint64_t address, size_t bytes) {
    return platform.lend(platform.self, address, bytes, &error);
  }
  pto_status check(uint64_t value) { return platform.check_value(platform.self, value, &error); }

  const pto_platform& platform;
};

int32_t write_at(void*, const pto_payload* payload, uint32_t, pto_error*) {
  const auto* args = reinterpret_cast<const uint64_t*>(payload + 1);
  bytes_at(args[0])[args[1]] = 1;
  return 0;
}

toy::Program one(int32_t func_id, std::vector<uint64_t> args) {
  return [=](toy::Runtime& runtime) {
    runtime.submit(func_id, PTO_CORE_AIV, args);
    return 0;
  };
}

}  // namespace

TEST(large_rings_cost_nothing_until_they_are_touched) {
  for (const char* check : {"0", "1"}) {
    Rings device(check);
    const size_t before = resident_bytes();
    uint64_t rings[4];
    for (uint64_t& ring : rings) ring = device.ring(kGiB);
    for (const uint64_t ring : rings) *bytes_at(ring + kGiB - 1) = 1;
    CHECK_EQUAL(device.run(one(device.kernel(write_at), {rings[0], 7})), PTO_OK);
    CHECK(resident_bytes() < before + 4 * kMiB);
    for (const uint64_t ring : rings) {
      CHECK_EQUAL(device.platform.free(device.platform.self, ring), PTO_OK);
    }
    CHECK(resident_bytes() < before + 4 * kMiB);
  }
}

TEST(rings_outlive_runs_and_are_not_reported_as_leaks) {
  for (const char* check : {"0", "1"}) {
    Rings device(check);
    uint64_t kept = 0;
    CHECK_EQUAL(device.api->allocate(device.device, 100, &kept, &device.error), PTO_OK);
    const uint64_t ring = device.ring(kMiB);
    const int32_t func_id = device.kernel(write_at);
    for (int i = 0; i < 3; ++i) {
      CHECK_EQUAL(device.run(one(func_id, {ring, 5})), PTO_OK);
      CHECK_EQUAL(device.report.peak_bytes, 100u);
      CHECK_EQUAL(*bytes_at(ring + 5), 1);
      char host = 0;
      CHECK_EQUAL(device.api->copy_out(device.device, &host, ring + 5, 1, &device.error), PTO_OK);
      CHECK_EQUAL(host, 1);
    }
    const pto_leak_report leaks = device.close();
    CHECK_EQUAL(leaks.buffers, 1u);
    CHECK_EQUAL(leaks.bytes, 100u);
  }
}

TEST(detaching_a_runtime_frees_its_rings) {
  Fixture device({{"workers", "1"}, {"memory_bytes", std::to_string(kMiB)}});
  for (int i = 0; i < 3; ++i) {
    const pto_platform& platform = device.runtime->platform();
    uint64_t address = 0;
    CHECK_EQUAL(platform.allocate_ring(platform.self, kMiB, &address), PTO_OK);
    CHECK_EQUAL(platform.allocate_ring(platform.self, 1, &address), PTO_ERROR_MEMORY);
    device.api->detach(device.device);
    device.attach(toy::host_built);
    device.runtime = static_cast<toy::Runtime*>(device.handle);
  }
}

TEST(a_ring_larger_than_the_device_is_refused) {
  for (const char* check : {"0", "1"}) {
    Rings device(check);
    uint64_t address = 0;
    const pto_platform& platform = device.platform;
    CHECK_EQUAL(platform.allocate_ring(platform.self, 9 * kGiB, &address), PTO_ERROR_MEMORY);
    device.ring(8 * kGiB);
    CHECK_EQUAL(platform.allocate_ring(platform.self, 1, &address), PTO_ERROR_MEMORY);
  }
}

TEST(touched_bytes_count_pages_read_or_written) {
  Rings device;
  const pto_platform& platform = device.platform;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* memory = static_cast<volatile char*>(platform.reserve(platform.self, kGiB));
  const auto touched = [&](size_t from, size_t bytes) {
    return platform.touched(platform.self, const_cast<char*>(memory) + from, bytes);
  };
  CHECK_EQUAL(touched(0, kGiB), 0u);
  memory[0] = 1;
  memory[1] = 1;
  [[maybe_unused]] const char read = memory[kGiB / 2];
  memory[kGiB - 1] = 1;
  CHECK_EQUAL(touched(0, kGiB), 3 * page);
  CHECK_EQUAL(touched(0, kGiB / 2), page);
  CHECK_EQUAL(touched(page, kGiB / 4), 0u);
  platform.release(platform.self, const_cast<char*>(memory), kGiB);
}

TEST(addresses_in_a_ring_are_valid) {
  Rings device("1");
  const uint64_t ring = device.ring(kMiB);
  for (const uint64_t offset : {size_t{0}, size_t{1}, kMiB - 1}) {
    CHECK_EQUAL(device.check(ring + offset), PTO_OK);
  }
  CHECK_EQUAL(device.check(ring - 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(device.check(ring + 2 * kMiB + 1), PTO_ERROR_ADDRESS);
}

TEST(a_lent_range_is_a_separate_buffer) {
  Rings device("1");
  const uint64_t ring = device.ring(kMiB);
  CHECK_EQUAL(device.lend(ring, 100), PTO_OK);
  CHECK_EQUAL(device.lend(ring + 2 * kKiB, 3000), PTO_OK);
  CHECK_EQUAL(device.check(ring + 100), PTO_OK);
  CHECK_EQUAL(device.check(ring + 101), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(device.check(ring + 2 * kKiB - 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(device.check(ring + 2 * kKiB + 2999), PTO_OK);
  char host[4096] = {};
  const auto copy = [&](uint64_t address, size_t bytes) {
    return device.platform.copy_in(device.platform.self, address, host, bytes);
  };
  CHECK_EQUAL(copy(ring, 100), PTO_OK);
  CHECK_EQUAL(copy(ring, 101), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(copy(ring + 2 * kKiB, 3001), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(copy(ring + kKiB, 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(device.lend(ring + 1, 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(device.lend(ring + 2 * kMiB, 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(device.lend(ring + kKiB, 2 * kMiB), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(device.lend(8, 1), PTO_ERROR_ADDRESS);
}

TEST(writes_around_a_lent_buffer_are_found_when_it_is_replaced) {
  for (const int64_t offset : {-1024, -1, 100, 1023, 2047}) {
    Rings device("1");
    const uint64_t ring = device.ring(kMiB);
    const uint64_t lent = ring + 4 * kKiB;
    CHECK_EQUAL(device.lend(lent, 100), PTO_OK);
    CHECK_EQUAL(device.lend(lent + 4 * kKiB, 100), PTO_OK);
    ++*bytes_at(lent + static_cast<uint64_t>(offset));
    CHECK_EQUAL(device.lend(lent + 6 * kKiB, 100), PTO_OK);
    CHECK_EQUAL(device.lend(ring + 2 * kKiB, 5000), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(device.error.message, std::to_string(offset).c_str()) != nullptr);
    CHECK_EQUAL(device.error.value, lent);
    CHECK_EQUAL(device.lend(ring + 2 * kKiB, 5000), PTO_OK);
  }
}

TEST(neighbours_in_a_ring_share_their_gap) {
  Rings device("1");
  const uint64_t ring = device.ring(kMiB);
  // Fill the ring twice, with other sizes the second time: the new zones that overwrite old buffers
  // must not count as damage.
  for (const size_t bytes : {size_t{1024}, size_t{700}, size_t{2048}, size_t{5000}}) {
    const size_t slab = (bytes + kKiB - 1) / kKiB * kKiB;
    for (size_t offset = 0; offset + slab <= kMiB; offset += slab) {
      CHECK_EQUAL(device.lend(ring + 2 * offset, bytes), PTO_OK);
      std::memset(bytes_at(ring + 2 * offset), 0, bytes);
    }
  }
  CHECK_EQUAL(device.run([](toy::Runtime&) { return 0; }), PTO_OK);
}

TEST(a_kernel_that_writes_past_a_lent_buffer_is_named) {
  for (const char* mode : {"threads", "deterministic"}) {
    Rings device("1", mode);
    const uint64_t ring = device.ring(kMiB);
    const int32_t func_id = device.kernel(write_at, nullptr, "greedy");
    const auto writing = [&](uint64_t at) {
      return device.run([&, at](toy::Runtime& runtime) {
        CHECK_EQUAL(device.lend(ring, 100), PTO_OK);
        runtime.submit(func_id, PTO_CORE_AIV, {ring, at});
        return 0;
      });
    };
    CHECK_EQUAL(writing(99), PTO_OK);
    CHECK_EQUAL(writing(100), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(device.error.message, "kernel greedy (func_id 0), task 0") != nullptr);
    CHECK(std::strstr(device.error.message, "byte 100 of the buffer") != nullptr);
    CHECK_EQUAL(writing(99), PTO_OK);
    CHECK_EQUAL(device.close().buffers, 0u);
  }
}

int main(int argc, char** argv) {
  return check::run(argc, argv);
}
