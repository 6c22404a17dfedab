// The registers of the cores, and the functions that natively compiled device code calls where the
// chip has an instruction or simply waits.
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "access/native.hpp"
#include "device_process/silicon.hpp"

namespace silicon {

thread_local Place place;
const char* folder = "";
const char* log_path = nullptr;
bool has_plain_registers = false;

namespace {

constexpr size_t kPageBytes = 4096;
// Offset of a word that no register uses: whether the core sleeps on its doorbell.
constexpr uint32_t kSleeps = 0x800;
constexpr int kSpins = 50;

std::atomic<uint32_t> changes{0};
std::atomic<uint32_t> resting{0};  // AICPU threads that sleep on `changes`

std::atomic<uint32_t>& word(uint64_t address) {
  return *reinterpret_cast<std::atomic<uint32_t>*>(address);
}

void park(std::atomic<uint32_t>& address, uint32_t expected, long timeout_ns) {
  const timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &address, FUTEX_WAIT_PRIVATE, expected, &limit, nullptr, 0);
}

void unpark(std::atomic<uint32_t>& address) {
  syscall(SYS_futex, &address, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void ring_doorbell(uint64_t page) {
  if (word(page + PTO_A2A3_FAST_PATH_ENABLE).load() != PTO_A2A3_FAST_PATH_OPEN) {
    std::fprintf(stderr, "device process: the doorbell of a closed core was written\n");
    std::abort();
  }
  if (word(page + kSleeps).load() != 0) unpark(word(page + PTO_A2A3_DATA_MAIN_BASE));
}

// A core that is given up has no task and waits for none.
void check_close(uint64_t page) {
  if (word(page + PTO_A2A3_FAST_PATH_ENABLE).load() != PTO_A2A3_FAST_PATH_CLOSE) return;
  if (word(page + PTO_A2A3_DATA_MAIN_BASE).load() >= PTO_A2A3_IDLE) return;
  std::fprintf(stderr, "device process: a core was closed whose doorbell is not idle\n");
  std::abort();
}

}  // namespace

Registers::Registers(uint32_t masked) : masked_(masked) {
  void* area = mmap(nullptr, PTO_A2A3_REGISTER_BYTES, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) throw std::runtime_error("no memory for register pages");
  base_ = reinterpret_cast<uint64_t>(area);
  for (uint32_t physical = 0; physical < PTO_A2A3_PHYSICAL_CORES; ++physical) {
    const uint64_t start = page(physical);
    if (start != 0) {
      mprotect(reinterpret_cast<void*>(start), kPageBytes, PROT_READ | PROT_WRITE);
    }
  }
}

uint64_t Registers::page(uint32_t physical) const {
  const uint64_t offset = pto_a2a3_page_offset(physical);
  const bool is_masked = (masked_ >> offset / PTO_A2A3_CLUSTER_STRIDE & 1) != 0;
  return is_masked ? 0 : base_ + offset;
}

void Registers::reset(uint32_t physical) {
  word(page(physical) + PTO_A2A3_DATA_MAIN_BASE).store(0);
}

}  // namespace silicon

using silicon::place;

extern "C" {

void silicon_changed(uint64_t address) {
  if (address % silicon::kPageBytes == PTO_A2A3_DATA_MAIN_BASE) {
    silicon::ring_doorbell(address - PTO_A2A3_DATA_MAIN_BASE);
    return;
  }
  if (address % silicon::kPageBytes == PTO_A2A3_FAST_PATH_ENABLE) {
    silicon::check_close(address - PTO_A2A3_FAST_PATH_ENABLE);
  }
  silicon::changes.fetch_add(1);
  if (silicon::resting.load() != 0) silicon::unpark(silicon::changes);
}

uint32_t silicon_changes() {
  return silicon::changes.load();
}

void silicon_rest(uint32_t seen) {
  for (int i = 0; i < silicon::kSpins; ++i) {
    if (silicon::changes.load() != seen) return;
    sched_yield();
  }
  silicon::resting.fetch_add(1);
  silicon::park(silicon::changes, seen, 1'000'000);
  silicon::resting.fetch_sub(1);
}

// At the start of a launch the core also watches for the end of the launch, so it sleeps briefly.
void silicon_wait(uint32_t seen) {
  std::atomic<uint32_t>& doorbell = silicon::word(place.page + PTO_A2A3_DATA_MAIN_BASE);
  for (int i = 0; i < silicon::kSpins; ++i) {
    if (doorbell.load() != seen) return;
    sched_yield();
  }
  std::atomic<uint32_t>& sleeps = silicon::word(place.page + silicon::kSleeps);
  sleeps.store(1);
  const bool is_brief = seen == 0 || silicon::has_plain_registers;
  silicon::park(doorbell, seen, is_brief ? 200'000 : 500'000'000);
  sleeps.store(0);
}

uint32_t silicon_block() {
  return place.block;
}
uint32_t silicon_blocks() {
  return place.blocks;
}
uint32_t silicon_subblock() {
  return place.subblock;
}
uint32_t silicon_physical() {
  return place.physical;
}
uint64_t silicon_page() {
  return place.page;
}
void silicon_set_flag_base(uint64_t address) {
  place.flag_base = address;
}
void silicon_set_texts(uint64_t address) {
  place.texts = address;
}
uint64_t silicon_texts() {
  return place.texts;
}
int silicon_call(uint64_t kernel, uint64_t* arguments) {
  sigjmp_buf escape;
  if (sigsetjmp(escape, 0) != 0) return 0;
  place.escape = &escape;
  reinterpret_cast<void (*)(int64_t*)>(kernel)(reinterpret_cast<int64_t*>(arguments));
  return 1;
}
void silicon_leave_kernel() {
  siglongjmp(*place.escape, 1);
}
// What a kernel does with a flag. On a chip a core without the base waits for ever.
void silicon_use_flag() {
  if (place.flag_base == SILICON_FLAG_BASE) return;
  std::fprintf(stderr, "device process: a flag was used on a core without their base\n");
  std::abort();
}

// The log of the vendor.
void DlogRecord(int32_t module, int32_t level, const char* format, ...) {
  std::FILE* file = silicon::log_path != nullptr ? std::fopen(silicon::log_path, "a") : nullptr;
  if (file == nullptr) return;
  std::fprintf(file, "module %d level %d: ", module, level);
  std::va_list values;
  va_start(values, format);
  std::vfprintf(file, format, values);
  va_end(values);
  std::fputc('\n', file);
  std::fclose(file);
}

const char* silicon_folder() {
  return silicon::folder;
}

// Device code calls the function of the C library; this one comes first.
int sched_getcpu() noexcept {
  return place.processor;
}

}  // extern "C"
