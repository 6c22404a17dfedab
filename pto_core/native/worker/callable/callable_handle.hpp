// The result of Worker.register. It identifies a callable that children can run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "pto/abi/endpoint.h"

namespace pto::worker {

enum class CallableKind : uint8_t {
  kChip = 0,
  kPythonImport = 1,
  kPythonSerialised = 2,
  kPythonInherited = 3
};

// The namespace of the callable: the kind of children that can run it.
enum class CallableSpace : uint8_t { kLocalChip = 0, kLocalPython = 1, kRemoteTaskDispatcher = 2 };

using Digest = std::array<uint8_t, PTO_DIGEST_BYTES>;
// Random, so it is unique across processes and hosts.
using Identity = std::array<uint8_t, 16>;

// Immutable. Copies are equal, because a handle is identified by `registration` only.
struct CallableHandle {
  Digest digest;
  CallableKind kind;
  CallableSpace space;
  std::string name;  // name for messages
  Identity worker;
  Identity registration;
  // For a chip whose signature declares types of scalars, in the live handle only: the data type of
  // each scalar, or core::kNoType.
  std::vector<int> scalars = {};
};

}  // namespace pto::worker
