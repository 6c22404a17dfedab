// The argument blob of a task, in the layout of a frame:
//
//   int32 T, int32 S, T x pto_tensor, S x uint64
//
// The decoder does not trust its input: it checks every length before use, and refuses tensors
// whose bytes exceed the address space. This code does not use Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pto/abi/arguments.h"

namespace pto::worker {

constexpr size_t kBlobHeadBytes = 8;

constexpr size_t blob_bytes(size_t tensors, size_t scalars) {
  return kBlobHeadBytes + tensors * sizeof(pto_tensor) + scalars * sizeof(uint64_t);
}

// Return false if the data type is unknown, if there are too many dimensions, or if the bytes
// exceed the address space.
bool count_bytes(const pto_tensor& tensor, uint64_t* bytes);

// The parts of a decoded blob, as pointers into it.
struct Blob {
  std::span<const pto_tensor> tensors;
  std::span<const uint64_t> scalars;
};

// Decode a blob; `bytes` is aligned to 8. Throws Refusal (protocol) if it is not a blob.
Blob decode_blob(std::span<const std::byte> bytes);

// Return the parts of a blob whose counts this process has written or checked.
Blob blob_at(const std::byte* bytes);

// Encode a blob: write exactly blob_bytes() bytes.
void encode_blob(const Blob& blob, std::byte* to);

}  // namespace pto::worker
