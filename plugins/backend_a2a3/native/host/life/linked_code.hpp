// The code of a kernel in the ELF file that the recipe of a kernel links at address 0.
//
// Only the code is uploaded, and it runs at any address. So a file is refused if its code needs
// anything else: a relocation that the linker did not apply, or data in another section.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pto/abi/status.h"

namespace pto::a2a3 {

struct LinkedCode {
  std::string_view bytes;  // in the file
  uint64_t alignment = 0;
  uint64_t entry = 0;  // offset of the entry in `bytes`
};

// Returns whether the file is a shared library, which only a native device loads.
bool is_shared_library(std::string_view file);

// Finds the code and its entry. `kernel` names the kernel in messages. On error `code` is
// unchanged.
pto_status read_linked_code(std::string_view file, const char* kernel, std::string_view entry,
                            LinkedCode* code, pto_error* error);

}  // namespace pto::a2a3
