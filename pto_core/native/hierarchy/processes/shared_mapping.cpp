#include "processes/shared_mapping.hpp"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <system_error>

#include "arguments/shared_ranges.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace pto::hierarchy {
namespace {

constexpr int kProtection = PROT_READ | PROT_WRITE;
constexpr int kFlags = MAP_SHARED | MAP_NORESERVE;
constexpr int kReservedFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
// The addresses between the program's heap and its libraries, which are usually free, on x86-64 and
// on AArch64 with at least 47 address bits.
constexpr uint64_t kHintsBegin = 0x1000'0000'0000;
constexpr uint64_t kHintsEnd = 0x5000'0000'0000;
constexpr uint64_t kHintStep = uint64_t{1} << 34;
constexpr int kHintTries = 16;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

uint64_t up_to_page(uint64_t value) {
  return (value + page_bytes() - 1) & ~(page_bytes() - 1);
}

// Hardened kernels refuse a file without MFD_NOEXEC_SEAL, and older kernels do not know this flag.
int create_unnamed_file() {
  int file = memfd_create("pto-worker", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (file < 0 && errno == EINVAL) file = memfd_create("pto-worker", MFD_CLOEXEC);
  if (file < 0) fail("memfd_create");
  return file;
}

// Another process may have mapped an existing file, so that is replaced and not truncated.
int create_named_file(const std::string& path) {
  unlink(path.c_str());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail("creating " + path);
  return file;
}

int create_file(uint64_t bytes, const std::string& path) {
  const int file = path.empty() ? create_unnamed_file() : create_named_file(path);
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(file);
    errno = error;
    fail("ftruncate");
  }
  return file;
}

void* map_at_hint(uint64_t bytes, int protection, int flags, int file) {
  std::random_device random;
  std::uniform_int_distribution<uint64_t> place(0, (kHintsEnd - kHintsBegin) / kHintStep - 1);
  for (int i = 0; i < kHintTries; ++i) {
    void* hint = reinterpret_cast<void*>(kHintsBegin + place(random) * kHintStep);
    void* memory = mmap(hint, bytes, protection, flags | MAP_FIXED_NOREPLACE, file, 0);
    if (memory == hint) return memory;
    if (memory != MAP_FAILED) munmap(memory, bytes);
  }
  return mmap(nullptr, bytes, protection, flags, file, 0);
}

}  // namespace

SharedMapping::SharedMapping(uint64_t bytes, const std::string& path)
    : bytes_(std::max(up_to_page(bytes), page_bytes())), owner_(getpid()) {
  descriptor_ = create_file(bytes_, path);
  memory_ = map_at_hint(bytes_, kProtection, kFlags, descriptor_);
  if (memory_ == MAP_FAILED) {
    const int error = errno;
    close(descriptor_);
    errno = error;
    fail("mmap of " + std::to_string(bytes_) + " bytes");
  }
}

SharedMapping::SharedMapping(int descriptor, uint64_t bytes, uint64_t address)
    : bytes_(bytes), owner_(getpid()) {
  void* wanted = reinterpret_cast<void*>(address);
  memory_ = mmap(wanted, bytes, kProtection, kFlags | MAP_FIXED_NOREPLACE, descriptor, 0);
  if (memory_ == MAP_FAILED) fail("mmap at a given address");
  if (memory_ == wanted) return;
  munmap(memory_, bytes);  // an old kernel does not know MAP_FIXED_NOREPLACE and used the address
                           // as a hint
  errno = EEXIST;
  fail("mmap at a given address");
}

SharedMapping::~SharedMapping() {
  if (!is_owner()) return;
  munmap(memory_, bytes_);
  SharedRanges::of_process().forget();
  if (descriptor_ >= 0) close(descriptor_);
}

bool SharedMapping::is_owner() const {
  return getpid() == owner_;
}

uint64_t SharedMapping::resident_bytes() const {
  struct stat status{};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) return 0;
  constexpr uint64_t kBlock = 512;  // the unit of st_blocks
  return static_cast<uint64_t>(status.st_blocks) * kBlock;
}

void SharedMapping::zero(uint64_t offset, uint64_t bytes) {
  if (!is_owner() || offset > bytes_ || bytes > bytes_ - offset) return;
  auto* begin = static_cast<char*>(memory_) + offset;
  const uint64_t first_page = std::min(up_to_page(offset), offset + bytes);
  const uint64_t last_page = (offset + bytes) & ~(page_bytes() - 1);
  if (first_page >= last_page) {
    std::memset(begin, 0, bytes);
    return;
  }
  std::memset(begin, 0, first_page - offset);
  char* pages = begin + (first_page - offset);
  if (madvise(pages, last_page - first_page, MADV_REMOVE) != 0) {
    std::memset(pages, 0, last_page - first_page);
  }
  std::memset(pages + (last_page - first_page), 0, offset + bytes - last_page);
}

AddressReservation::AddressReservation(uint64_t bytes)
    : bytes_(std::max(up_to_page(bytes), page_bytes())) {
  memory_ = map_at_hint(bytes_, PROT_NONE, kReservedFlags, -1);
  if (memory_ == MAP_FAILED) fail("mmap of " + std::to_string(bytes_) + " bytes");
}

AddressReservation::~AddressReservation() {
  munmap(memory_, bytes_);
}

}  // namespace pto::hierarchy
