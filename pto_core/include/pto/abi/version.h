/* The version of the native ABI between a backend and a level-2 runtime.
 *
 * One integer covers every header in this folder. The first member of a library's exported table is
 * the version for which the library was built. A loader rejects any other version. The version
 * stays 0, and the ABI may change without notice, until the ABI is declared stable.
 *
 * Rules for every header here: it is valid C11 and C++17; it covers one concept; it asserts size
 * and offsets of every struct that crosses a library or a process boundary.
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
