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

// Find the loaded libraries with thread pools. Does nothing if no library was loaded since the last
// search. Called in the parent, so that children need not search.
void find_thread_pools();

// Set the number of threads of each loaded library in `pools`, like the library's environment
// variable does at loading. Return the number of libraries that were changed.
int limit_thread_pools(const ThreadPools& pools, int threads);

}  // namespace pto::hierarchy
