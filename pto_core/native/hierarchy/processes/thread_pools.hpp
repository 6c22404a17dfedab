// Limits the thread pools of libraries that are already loaded, in a child.
//
// Only one thread at a time may use it.
#pragma once

namespace pto::hierarchy {

// The families of libraries whose thread pools are limited.
struct ThreadPools {
  bool openmp;
  bool openblas;
  bool mkl;
  bool blis;
};

// Find the loaded libraries, unless no library was loaded since the last search. Called in the
// parent, so that no child has to search.
void find_thread_pools();

// Set the number of threads of each loaded library in `pools`. This has the same effect as setting
// its environment variable before loading. Return the number of libraries that were configured.
int limit_thread_pools(const ThreadPools& pools, int threads);

}  // namespace pto::hierarchy
