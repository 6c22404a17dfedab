// Thread pools of libraries that are loaded already, in a child.
#pragma once

namespace pto::hierarchy {

// Which families of libraries are told.
struct ThreadPools {
  bool openmp;
  bool openblas;
  bool mkl;
  bool blis;
};

// Gives each loaded library of `pools` that many threads, as its environment variable would have
// done had it been set before the library was loaded. Says how many libraries were told.
int limit_thread_pools(const ThreadPools& pools, int threads);

}  // namespace pto::hierarchy
