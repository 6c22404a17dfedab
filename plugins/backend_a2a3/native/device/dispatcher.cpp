// The dispatcher: installs the device library in the folder from which CANN loads libraries.
//
// CANN calls the three entries by name. Only the first entry does anything; the others must exist.
// A value other than 0 fails the launch.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "abi/dispatcher.h"
#include "device/access.hpp"
#include "device/error.hpp"
#include "device/files.hpp"
#include "pto/engine/text.hpp"

#ifndef PTO_A2A3_CHIP
// The program that plays the silicon has the folder.
extern "C" const char* silicon_folder(void);
#endif

namespace pto::a2a3 {
namespace {

const char* folder() {
#ifdef PTO_A2A3_CHIP
  return PTO_A2A3_LIBRARY_FOLDER;
#else
  return silicon_folder();
#endif
}

enum : uint32_t { kOk = 0, kNoBlock = 1, kNoLibrary = 2, kNotWritten = 3 };

// The file gets its name when it is complete. An older file with that name can be damaged, so it is
// always replaced; a process that has loaded it keeps what it loaded.
uint32_t install(const pto_a2a3_bootstrap_block& block) {
  const char* library = from_host<char>(block.library, block.library_bytes);
  char name[PTO_A2A3_LIBRARY_NAME_BYTES];
  pto_a2a3_library_name(name, library, block.library_bytes, block.device);
  char path[512], incomplete[512];
  engine::Text(path, sizeof path).add(folder(), "/", static_cast<const char*>(name));
  engine::Text(incomplete, sizeof incomplete)
      .add(static_cast<const char*>(path), ".", static_cast<int32_t>(getpid()), ".",
           Aicpu::now_ns());
  int reason = write_file(incomplete, library, block.library_bytes);
  if (reason == 0) {
    if (rename(incomplete, path) == 0) return kOk;
    reason = errno;
    unlink(incomplete);
  }
  char message[600];
  engine::Text(message, sizeof message)
      .add("the device library cannot be written to ", static_cast<const char*>(path), ": ",
           static_cast<const char*>(strerror(reason)));
  note_error(message);
  return kNotWritten;
}

}  // namespace
}  // namespace pto::a2a3

#define PTO_ENTRY extern "C" __attribute__((visibility("default"))) uint32_t

PTO_ENTRY DynTileFwkBackendKernelServerInit(const pto_a2a3_bootstrap_arguments* arguments) {
  using namespace pto::a2a3;
  if (arguments == nullptr || arguments->block == 0) return kNoBlock;
  const auto& block = *from_host<pto_a2a3_bootstrap_block>(arguments->block);
  if (block.library == 0 || block.library_bytes == 0) return kNoLibrary;
  return install(block);
}

PTO_ENTRY DynTileFwkBackendKernelServer(const void*) {
  return 0;
}

PTO_ENTRY StaticTileFwkBackendKernelServer(const void*) {
  return 0;
}
