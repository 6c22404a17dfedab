// The data_type.h of the runtime. Its folder may be before or after this one in the search order.
#ifndef PTO_SEARCHING_DATA_TYPE_H
#define PTO_SEARCHING_DATA_TYPE_H
#include <data_type.h>
#undef PTO_SEARCHING_DATA_TYPE_H
#else
#include_next <data_type.h>
#endif
