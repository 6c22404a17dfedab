/* The codes of data types. They are the same in every language, file and frame.
 *
 * Codes 0 to 8 are published. The codes from 9 are for further data types of NumPy and ml_dtypes.
 */
#ifndef PTO_ABI_DTYPE_H
#define PTO_ABI_DTYPE_H

enum {
  PTO_DTYPE_FLOAT32 = 0,
  PTO_DTYPE_FLOAT16 = 1,
  PTO_DTYPE_INT32 = 2,
  PTO_DTYPE_INT16 = 3,
  PTO_DTYPE_INT8 = 4,
  PTO_DTYPE_UINT8 = 5,
  PTO_DTYPE_BFLOAT16 = 6,
  PTO_DTYPE_INT64 = 7,
  PTO_DTYPE_UINT64 = 8,
  PTO_DTYPE_FLOAT64 = 9,
  PTO_DTYPE_BOOL = 10,
  PTO_DTYPE_UINT16 = 11,
  PTO_DTYPE_UINT32 = 12,
  PTO_DTYPE_COMPLEX64 = 13,
  PTO_DTYPE_COMPLEX128 = 14,
  PTO_DTYPE_FLOAT8_E4M3FN = 15,
  PTO_DTYPE_FLOAT8_E5M2 = 16,
  PTO_DTYPE_COUNT = PTO_DTYPE_FLOAT8_E5M2 + 1
};

#endif
