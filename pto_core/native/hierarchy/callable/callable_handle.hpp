// What Worker.register gives: the identity of something that children can run.
//
// One thread at a time uses a Worker, so nothing here is atomic.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "pto/abi/endpoint.h"

namespace pto::hierarchy {

enum class CallableKind : uint8_t {
  kChip = 0,
  kPythonImport = 1,
  kPythonSerialised = 2,
  kPythonInherited = 3
};

// Whose table the digest is looked up in.
enum class CallableSpace : uint8_t { kLocalChip = 0, kLocalPython = 1, kRemoteTaskDispatcher = 2 };

using Digest = std::array<uint8_t, PTO_DIGEST_BYTES>;

struct CallableHandle {
  const Digest digest;
  const CallableKind kind;
  const CallableSpace space;
  const std::string name;  // for messages
  const uint64_t owner;    // number of the Worker that made it
  bool is_alive = true;    // false from unregister, or the end of its Worker, on
};

}  // namespace pto::hierarchy
