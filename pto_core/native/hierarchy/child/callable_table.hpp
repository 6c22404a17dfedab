// The callables of a child, by digest. Used with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "pto/abi/endpoint.h"

namespace pto::hierarchy {

namespace nb = nanobind;

using Digest = std::array<uint8_t, PTO_DIGEST_BYTES>;

struct KnownCallable {
  nb::object callable;
  bool takes_arguments = true;  // false if the callable is called without arguments
};

class CallableTable {
 public:
  // Add an entry. Replace an entry with the same digest.
  void add(const Digest& digest, KnownCallable known) {
    last_ = nullptr;
    callables_[digest] = std::move(known);
  }

  // Remove an entry. Return false if there is none.
  bool forget(const Digest& digest) {
    last_ = nullptr;
    return callables_.erase(digest) != 0;
  }

  // Return the entry, or null if there is none. The pointer is valid until the next add() or
  // forget(). The entry of the last call is checked first, because most calls use the same entry
  // again.
  const KnownCallable* find(const uint8_t* digest) {
    if (last_ && std::memcmp(last_->first.data(), digest, PTO_DIGEST_BYTES) == 0)
      return &last_->second;
    Digest key;
    std::memcpy(key.data(), digest, key.size());
    const auto found = callables_.find(key);
    if (found == callables_.end()) return nullptr;
    last_ = &*found;
    return &last_->second;
  }

 private:
  // A digest is uniformly distributed, so its first bytes are a good hash.
  struct Hash {
    size_t operator()(const Digest& digest) const {
      size_t first = 0;
      std::memcpy(&first, digest.data(), sizeof first);
      return first;
    }
  };

  using Map = std::unordered_map<Digest, KnownCallable, Hash>;
  Map callables_;
  const Map::value_type* last_ = nullptr;
};

}  // namespace pto::hierarchy
