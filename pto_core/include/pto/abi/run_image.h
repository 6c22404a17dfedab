/* The image of a run: the bytes in which a run travels to the device on which its variant runs.
 *
 * The image starts at an address that is a multiple of 8 and contains no pointer of the host: its
 * parts are at offsets from its start. The host ranges, the function `attend` and the names of the
 * kernels are not in the image. `library` is the handle in the host process; the reader puts the
 * handle of the library on the device in its place. pto/engine/run_image.hpp writes and reads
 * images.
 */
#ifndef PTO_ABI_RUN_IMAGE_H
#define PTO_ABI_RUN_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/runtime.h"
#include "pto/abi/version.h"

#define PTO_RUN_IMAGE_MAGIC 0x4e525450u /* "PTRN" */

/* The kernels are pto_kernel_entry without names, the arguments uint64_t and pto_tensor, the entry
 * is a text with a final zero, and the configuration a pto_call_config. */
typedef struct pto_run_image {
  uint32_t magic;
  uint32_t version; /* PTO_ABI_VERSION */
  uint64_t bytes;   /* of the whole image */
  uint64_t library; /* handle in the host process; 0 if the caller submits */
  uint32_t num_kernels;
  uint32_t num_args;
  uint32_t hazards;
  uint32_t entry_bytes; /* with the final zero; 0: the variant's default entry */
  uint64_t kernels;     /* the offsets of the parts */
  uint64_t args;
  uint64_t arguments; /* 0: not known */
  uint64_t entry;
  uint64_t config; /* 0: none */
} pto_run_image;

PTO_ABI_ASSERT(sizeof(pto_run_image) == 80, "pto_run_image travels between processors");
PTO_ABI_ASSERT(offsetof(pto_run_image, library) == 16, "pto_run_image.library");
PTO_ABI_ASSERT(offsetof(pto_run_image, kernels) == 40, "pto_run_image.kernels");

#endif
