#include <nanobind/nanobind.h>

#include "pto/abi/version.h"

NB_MODULE(_native, module) { module.attr("ABI_VERSION") = PTO_ABI_VERSION; }
