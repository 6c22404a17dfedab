// Limits the thread pools of libraries that are already loaded, in a child.
//
// Used by one thread at a time.
#pragma once

namespace pto::hierarchy {

// The families of libraries to configure.
struct ThreadPools {
  bool openmp;
  bool openblas;
  bool mkl;
  bool blis;
};

// Find the loaded libraries, unless none was loaded since the last search. Called in the parent, so
// that no child has to search.
void find_thread_pools();

// Set the number of threads of each loaded library in `pools`, with the same effect as its
// environment variable before loading. Return the number of configured libraries.
int limit_thread_pools(const ThreadPools& pools, int threads);

}  // namespace pto::hierarchy
