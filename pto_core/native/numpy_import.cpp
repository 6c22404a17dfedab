// Imports the NumPy C API. NumPy's header defines its function table in this source and declares it
// in all others, so this source is compiled by itself.
#define PTO_CORE_IMPORTS_NUMPY
#include "numpy_api.hpp"

namespace pto::core {

int import_numpy_table() {
  import_array1(-1);
  return 0;
}

}  // namespace pto::core
