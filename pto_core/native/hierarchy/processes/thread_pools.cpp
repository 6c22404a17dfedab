#include "processes/thread_pools.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>
#include <vector>

namespace pto::hierarchy {
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

}  // namespace pto::hierarchy
