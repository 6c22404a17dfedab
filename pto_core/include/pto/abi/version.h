/* The version of the native ABI between a backend and a level-2 runtime.
 *
 * One integer covers every header in this folder. A library states the version against which it was
 * built in the first member of its exported table; a loader refuses any other version. The version
 * stays 0, and the ABI may change without notice, until the ABI is declared stable.
 *
 * Rules for every header here: it is valid C11 and C++17; it has one concept; it asserts size and
 * offsets of every struct that crosses a library or a process boundary.
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
