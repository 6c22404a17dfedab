/* The version of the native ABI between a backend and a level-2 runtime.
 *
 * One integer covers every header in this folder. A library states the version it was built against
 * in the first member of the table it exports; a loader refuses any other. The version stays 0, and
 * the ABI may change without notice, until a runtime with a blocking submit has gone through it.
 *
 * Rules for every header here: C11 that is also C++17; one concept a header; every struct that
 * crosses a library or a process has its size and offsets asserted.
 */
#ifndef PTO_ABI_VERSION_H
#define PTO_ABI_VERSION_H

#define PTO_ABI_VERSION 0u

#ifdef __cplusplus
#define PTO_ABI_EXPORT extern "C" __attribute__((visibility("default")))
#define PTO_ABI_ASSERT(condition, text) static_assert(condition, text)
#else
#define PTO_ABI_EXPORT __attribute__((visibility("default")))
#define PTO_ABI_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#endif
