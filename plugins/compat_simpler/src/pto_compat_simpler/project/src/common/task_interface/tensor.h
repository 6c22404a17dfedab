// The tensor.h of the runtime. Its folder may be before or after this one in the search order.
#ifndef PTO_SEARCHING_TENSOR_H
#define PTO_SEARCHING_TENSOR_H
#include <tensor.h>
#undef PTO_SEARCHING_TENSOR_H
#else
#include_next <tensor.h>
#endif
