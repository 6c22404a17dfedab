// The names of the entry through which CANN runs our first library on the AICPU.
//
// They belong to a CANN release, not to its public interface, so they are data. Settings replace
// them for a release that this table does not know.
#pragma once

#include <string>
#include <string_view>

#include "driver.hpp"

namespace pto::a2a3::cann {

struct BootstrapNames {
  std::string operation;  // name of the operation
  std::string kernel;     // function that CANN's library runs for it
  std::string library;    // CANN's library on the AICPU
};

// Sets a name if `key` is bootstrap_operation, bootstrap_kernel or bootstrap_library. Returns
// whether it is one of them.
bool read_bootstrap(std::string_view key, std::string_view value, BootstrapNames& names);

// Returns the names for a release. A non-empty member of `replaced` replaces that of the table; if
// all are given, any release is accepted.
pto_status find_bootstrap(Version version, const BootstrapNames& replaced, BootstrapNames* names,
                          pto_error* error);

}  // namespace pto::a2a3::cann
