#include "processes/processes.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/memfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "arguments/visible_memory.hpp"
#include "blocked_signals.hpp"

namespace pto::worker {
namespace {

bool is_of_a_crash(int number) {
  switch (number) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string block_signals() {
  sigset_t all;
  sigset_t saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  return {reinterpret_cast<const char*>(&saved), sizeof saved};
}

void restore_signals(const std::string& saved) {
  sigset_t mask;
  if (saved.size() != sizeof mask) return;
  std::memcpy(&mask, saved.data(), sizeof mask);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void reset_signals() {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action{};
    if (is_of_a_crash(number) || sigaction(number, nullptr, &action) != 0) continue;
    if (!(action.sa_flags & SA_SIGINFO) &&
        (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
      continue;
    }
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
}

namespace {

void* watch(void* argument) {
  pollfd parent{static_cast<int>(reinterpret_cast<intptr_t>(argument)), POLLIN, 0};
  while (poll(&parent, 1, -1) < 0 && errno == EINTR) {
  }
  kill(getpid(), SIGKILL);
  return nullptr;
}

}  // namespace

void watch_parent(int parent) {
  constexpr size_t kStackBytes = 64 << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes,
                            std::max(kStackBytes, static_cast<size_t>(PTHREAD_STACK_MIN)));
  const core::BlockedSignals blocked;
  pthread_t thread{};
  void* argument = reinterpret_cast<void*>(static_cast<intptr_t>(parent));
  const int error = pthread_create(&thread, &attributes, &watch, argument);
  pthread_attr_destroy(&attributes);
  if (error != 0)
    throw std::system_error(error, std::generic_category(),
                            "the thread that watches the parent cannot be started");
}

}  // namespace pto::worker

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace pto::worker {
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

namespace {

// The names of the functions that set and return the number of threads, in one build of a library.
// `get` is NULL if it is not needed.
struct Functions {
  const char* set;
  const char* get;
};

struct Family {
  bool ThreadPools::* wanted;
  const char* file;  // part of the library's file name
  std::vector<Functions> functions;
};

const std::vector<Family>& families() {
  static const std::vector<Family> known = {
      {&ThreadPools::openmp, "libgomp", {{"omp_set_num_threads", nullptr}}},
      {&ThreadPools::openmp, "libomp", {{"omp_set_num_threads", nullptr}}},
      {&ThreadPools::openmp, "libiomp", {{"omp_set_num_threads", nullptr}}},
      {&ThreadPools::openblas,
       "openblas",
       {{"openblas_set_num_threads", "openblas_get_num_threads"},
        {"openblas_set_num_threads64_", "openblas_get_num_threads64_"},
        {"scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"},
        {"scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"}}},
      {&ThreadPools::mkl, "libmkl_rt", {{"MKL_Set_Num_Threads", nullptr}}},
      {&ThreadPools::blis, "libblis", {{"bli_thread_set_num_threads", nullptr}}},
  };
  return known;
}

// One library and its functions. A function that the library lacks is NULL.
struct ThreadPool {
  bool ThreadPools::* wanted;
  void (*set)(int);
  int (*get)();
  const int* has_threads;  // variable of OpenBLAS
  int* count;
};

struct Found {
  unsigned long long loaded = 0;  // number of loaded libraries at the last search
  std::vector<ThreadPool> pools;
};

Found& found() {
  static Found pools;
  return pools;
}

int count_loaded(dl_phdr_info* info, size_t, void* count) {
  *static_cast<unsigned long long*>(count) = info->dlpi_adds;
  return 1;
}

int note_name(dl_phdr_info* info, size_t, void* names) {
  if (info->dlpi_name && *info->dlpi_name) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
  }
  return 0;
}

template <class Pointer>
Pointer symbol(void* library, const char* name) {
  return name ? reinterpret_cast<Pointer>(dlsym(library, name)) : nullptr;
}

void add_pools(const std::string& path, const Family& family, std::vector<ThreadPool>* pools) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return;
  for (const Functions& functions : family.functions) {
    ThreadPool pool{family.wanted, symbol<void (*)(int)>(library, functions.set),
                    symbol<int (*)()>(library, functions.get), nullptr, nullptr};
    if (!pool.set) continue;
    if (pool.get) {
      pool.has_threads = symbol<const int*>(library, "blas_server_avail");
      pool.count = symbol<int*>(library, "blas_cpu_number");
    }
    pools->push_back(pool);
  }
  dlclose(library);  // only drops this reference: other code keeps the library loaded
}

bool set_threads(const ThreadPool& pool, int threads) {
  if (pool.get && pool.get() <= threads) return false;
  // After a fork, OpenBLAS has no thread pool until it needs one. The function of OpenBLAS would
  // first start a pool with a thread for each core, even if only one thread is used. So this code
  // only sets the number.
  if (pool.has_threads && pool.count && *pool.has_threads == 0) {
    *pool.count = threads;
  } else {
    pool.set(threads);
  }
  return true;
}

}  // namespace

void find_thread_pools() {
  unsigned long long loaded = 0;
  dl_iterate_phdr(&count_loaded, &loaded);
  if (loaded == found().loaded) return;
  std::vector<std::string> paths;
  dl_iterate_phdr(&note_name, &paths);
  found() = {loaded, {}};
  for (const std::string& path : paths) {
    const char* file = path.c_str() + path.rfind('/') + 1;
    for (const Family& family : families()) {
      if (std::strstr(file, family.file)) add_pools(path, family, &found().pools);
    }
  }
}

int limit_thread_pools(const ThreadPools& pools, int threads) {
  find_thread_pools();
  int changed = 0;
  for (const ThreadPool& pool : found().pools)
    changed += pools.*pool.wanted && set_threads(pool, threads);
  return changed;
}

}  // namespace pto::worker
