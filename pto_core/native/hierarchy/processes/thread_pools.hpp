// Thread pools of libraries that are loaded already, in a child.
//
// Used by one thread at a time.
#pragma once

namespace pto::hierarchy {

// Which families of libraries are told.
struct ThreadPools {
  bool openmp;
  bool openblas;
  bool mkl;
  bool blis;
};

// Looks the loaded libraries up, unless they are those of the last time: in the parent, so that no
// child has to.
void find_thread_pools();

// Gives each loaded library of `pools` that many threads, as its environment variable would have
// done had it been set before the library was loaded. Says how many libraries were told.
int limit_thread_pools(const ThreadPools& pools, int threads);

}  // namespace pto::hierarchy
