#include "arguments/blob.hpp"

#include <cstring>
#include <string>

#include "engine/interface.hpp"
#include "pto/engine/tensor_region.hpp"

namespace pto::worker {
namespace {

struct Head {
  int32_t tensors;
  int32_t scalars;
};
static_assert(sizeof(Head) == kBlobHeadBytes);

[[noreturn]] void refuse_blob(const std::string& what) {
  throw Refusal(Refusal::Kind::kProtocol, "the arguments of a task are invalid: " + what);
}

void check_tensor(const pto_tensor& tensor, size_t index) {
  uint64_t bytes = 0;
  if (tensor.child_memory <= 1 && count_bytes(tensor, &bytes)) return;
  refuse_blob("tensor " + std::to_string(index) + " has data type code " +
              std::to_string(tensor.dtype) + ", " + std::to_string(tensor.ndims) +
              " dimensions and child_memory " + std::to_string(tensor.child_memory) +
              " at address " + std::to_string(tensor.data));
}

}  // namespace

bool count_bytes(const pto_tensor& tensor, uint64_t* bytes) {
  if (tensor.dtype >= sizeof engine::kElementBytes || tensor.ndims > PTO_MAX_DIMS) return false;
  uint64_t total = engine::kElementBytes[tensor.dtype];
  bool is_empty = false;
  for (uint32_t i = 0; i < tensor.ndims; ++i) is_empty |= tensor.shapes[i] == 0;
  for (uint32_t i = 0; i < tensor.ndims && !is_empty; ++i)
    if (__builtin_mul_overflow(total, uint64_t{tensor.shapes[i]}, &total)) return false;
  *bytes = is_empty ? 0 : total;
  uint64_t end = 0;
  return *bytes <= INT64_MAX && !__builtin_add_overflow(tensor.data, *bytes, &end);
}

Blob decode_blob(std::span<const std::byte> bytes) {
  if (bytes.size() < kBlobHeadBytes)
    refuse_blob(std::to_string(bytes.size()) + " bytes arrived, but the counts alone have " +
                std::to_string(kBlobHeadBytes));
  Head head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.tensors < 0 || head.scalars < 0)
    refuse_blob("their counts are " + std::to_string(head.tensors) + " tensors and " +
                std::to_string(head.scalars) + " scalars");
  const auto tensors = static_cast<size_t>(head.tensors);
  const auto scalars = static_cast<size_t>(head.scalars);
  if (bytes.size() != blob_bytes(tensors, scalars))
    refuse_blob(std::to_string(tensors) + " tensors and " + std::to_string(scalars) +
                " scalars take " + std::to_string(blob_bytes(tensors, scalars)) + " bytes, but " +
                std::to_string(bytes.size()) + " came");
  const Blob blob = blob_at(bytes.data());
  for (size_t i = 0; i < tensors; ++i) check_tensor(blob.tensors[i], i);
  return blob;
}

Blob blob_at(const std::byte* bytes) {
  Head head;
  std::memcpy(&head, bytes, sizeof head);
  const auto* first = reinterpret_cast<const pto_tensor*>(bytes + sizeof head);
  const auto* last = first + head.tensors;
  return {{first, last},
          {reinterpret_cast<const uint64_t*>(last), static_cast<size_t>(head.scalars)}};
}

void encode_blob(const Blob& blob, std::byte* to) {
  const Head head{static_cast<int32_t>(blob.tensors.size()),
                  static_cast<int32_t>(blob.scalars.size())};
  std::memcpy(to, &head, sizeof head);
  std::byte* tensors = to + sizeof head;
  if (!blob.tensors.empty()) std::memcpy(tensors, blob.tensors.data(), blob.tensors.size_bytes());
  if (!blob.scalars.empty())
    std::memcpy(tensors + blob.tensors.size_bytes(), blob.scalars.data(),
                blob.scalars.size_bytes());
}

}  // namespace pto::worker
