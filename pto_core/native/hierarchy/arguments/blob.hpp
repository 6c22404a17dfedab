// The argument blob of a task, as it lies in a frame:
//
//   int32 T, int32 S, T x pto_tensor, S x uint64
//
// What is decoded may be anything: every length is checked before it is followed, and every tensor
// describes bytes that an address can count. Nothing here knows Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pto/abi/arguments.h"

namespace pto::hierarchy {

constexpr size_t kBlobHeadBytes = 8;
constexpr uint32_t kDataTypes = 15;  // codes of pto/abi/dtype.h

constexpr size_t blob_bytes(size_t tensors, size_t scalars) {
  return kBlobHeadBytes + tensors * sizeof(pto_tensor) + scalars * sizeof(uint64_t);
}

// Of one element; 0 for a code that is none.
uint32_t element_bytes_of(uint8_t code);

// False when the tensor has no such data type, too many dimensions, or more bytes than an address
// can count from where it begins.
bool count_bytes(const pto_tensor& tensor, uint64_t* bytes);

// Points into the blob.
struct Blob {
  std::span<const pto_tensor> tensors;
  std::span<const uint64_t> scalars;
};

// `bytes` is aligned to 8. Throws Refusal (protocol) when it is no blob.
Blob decode_blob(std::span<const std::byte> bytes);

// Writes blob_bytes() of them.
void encode_blob(const Blob& blob, std::byte* to);

}  // namespace pto::hierarchy
