#include "processes/thread_pools.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>
#include <vector>

namespace pto::hierarchy {
namespace {

// How a build of a library calls its pair of functions; `get` is NULL where none is needed.
struct Functions {
  const char* set;
  const char* get;
};

struct Family {
  bool ThreadPools::* wanted;
  const char* file;  // part of the name of the library's file
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

int note_name(dl_phdr_info* info, size_t, void* names) {
  if (info->dlpi_name && *info->dlpi_name) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
  }
  return 0;
}

template <class Function>
Function symbol(void* library, const char* name) {
  return name ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

// After a fork OpenBLAS has no pool until it needs one. Its function would start it, with a thread
// for each core, to use one of them; this is what the function does besides.
bool tell_idle_openblas(void* library, int threads) {
  const auto has_pool = symbol<const int*>(library, "blas_server_avail");
  const auto wanted = symbol<int*>(library, "blas_cpu_number");
  if (!has_pool || !wanted || *has_pool != 0) return false;
  *wanted = threads;
  return true;
}

bool tell(void* library, const Functions& functions, int threads) {
  const auto set = symbol<void (*)(int)>(library, functions.set);
  const auto get = symbol<int (*)()>(library, functions.get);
  if (!set || (get && get() <= threads)) return false;
  if (get && tell_idle_openblas(library, threads)) return true;
  set(threads);
  return true;
}

}  // namespace

int limit_thread_pools(const ThreadPools& pools, int threads) {
  std::vector<std::string> loaded;
  dl_iterate_phdr(&note_name, &loaded);
  int told = 0;
  for (const std::string& path : loaded) {
    const char* file = path.c_str() + path.rfind('/') + 1;
    for (const Family& family : families()) {
      if (!(pools.*family.wanted) || !std::strstr(file, family.file)) continue;
      void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
      if (!library) continue;
      for (const Functions& functions : family.functions) told += tell(library, functions, threads);
      dlclose(library);
    }
  }
  return told;
}

}  // namespace pto::hierarchy
