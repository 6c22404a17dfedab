#include "bootstrap.hpp"

#include "../error.hpp"

namespace pto::a2a3::cann {

namespace {

struct Release {
  Version first;
  Version last;
  const char* operation;
  const char* kernel;
  const char* library;
};

constexpr Release kReleases[] = {
    {{8, 1}, {9, 1}, "AST_DYN_AICPU", "DynTileFwkKernelServerInit", "libaicpu_extend_kernels.so"},
};

}  // namespace

bool read_bootstrap(std::string_view key, std::string_view value, BootstrapNames& names) {
  std::string* name = nullptr;
  if (key == "bootstrap_operation") name = &names.operation;
  if (key == "bootstrap_kernel") name = &names.kernel;
  if (key == "bootstrap_library") name = &names.library;
  if (name != nullptr) *name = value;
  return name != nullptr;
}

pto_status find_bootstrap(Version version, const BootstrapNames& replaced, BootstrapNames* names,
                          pto_error* error) {
  *names = replaced;
  for (const Release& release : kReleases) {
    if (version < release.first || version > release.last) continue;
    if (names->operation.empty()) names->operation = release.operation;
    if (names->kernel.empty()) names->kernel = release.kernel;
    if (names->library.empty()) names->library = release.library;
  }
  if (!names->operation.empty() && !names->kernel.empty() && !names->library.empty()) return PTO_OK;
  return fail(error, PTO_ERROR_UNSUPPORTED,
              "the plugin knows the AICPU entry of CANN 8.1 to 9.1, not of %d.%d. Install a known "
              "release, or set a2a3.bootstrap_operation, a2a3.bootstrap_kernel and "
              "a2a3.bootstrap_library",
              version.major, version.minor);
}

}  // namespace pto::a2a3::cann
