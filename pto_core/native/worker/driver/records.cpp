#include "driver/records.hpp"

#include <algorithm>
#include <cstring>

#include "arguments/blob.hpp"

namespace pto::worker {

std::byte* Records::Chunk::take(size_t bytes) {
  bytes = (bytes + 7) & ~size_t{7};
  if (bytes > kBlockBytes) {  // spare blocks, before the current block, which is last
    blocks.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    std::byte* data = blocks.back().get();
    if (blocks.size() > 1) std::swap(blocks.back(), blocks[blocks.size() - 2]);
    return data;
  }
  if (blocks.empty() || used + bytes > kBlockBytes) {
    blocks.push_back(std::make_unique_for_overwrite<std::byte[]>(kBlockBytes));
    used = 0;
  }
  std::byte* data = blocks.back().get() + used;
  used += bytes;
  return data;
}

Records::Chunk& Records::chunk_of(int64_t number) {
  if (chunks_.empty()) first_ = number / kTasks * kTasks;
  const auto index = static_cast<size_t>(number / kTasks - first_ / kTasks);
  while (chunks_.size() <= index) {
    if (!chunks_.empty() && chunks_.back() && chunks_.back()->live == 0)
      keep_spare(std::move(chunks_.back()));
    std::unique_ptr<Chunk> chunk;
    if (spares_.empty()) {
      chunk = std::make_unique<Chunk>();
    } else {
      chunk = std::move(spares_.back());
      spares_.pop_back();
    }
    for (SentTask& record : chunk->records) record.flags = 0;
    chunks_.push_back(std::move(chunk));
  }
  return *chunks_[index];
}

void Records::keep_spare(std::unique_ptr<Chunk> chunk) {
  if (spares_.size() == kSpares) return;
  if (chunk->blocks.size() > 1) chunk->blocks.resize(1);
  chunk->used = chunk->blocks.empty() ? kBlockBytes : 0;
  spares_.push_back(std::move(chunk));
}

SentTask& Records::append(int64_t number, size_t bytes) {
  Chunk& chunk = chunk_of(number);
  SentTask& record = chunk.records[number % kTasks];
  record.blobs = chunk.take(bytes);
  record.flags = SentTask::kIsLive;
  chunk.live += 1;
  live_ += 1;
  next_ = number + 1;
  return record;
}

void Records::end(int64_t number) {
  SentTask* record = find(number);
  if (!record) return;
  record->flags = 0;
  live_ -= 1;
  auto& place = chunks_[static_cast<size_t>(number / kTasks - first_ / kTasks)];
  place->live -= 1;
  const bool is_full = number / kTasks < (next_ - 1) / kTasks || next_ % kTasks == 0;
  if (place->live > 0 || !is_full) return;
  keep_spare(std::move(place));
  while (!chunks_.empty() && !chunks_.front()) {
    chunks_.pop_front();
    first_ += kTasks;
  }
}

BlobPlace blob_of(const SentTask& record, int32_t member) {
  std::byte* data = record.blobs;
  const bool has_uses = (record.flags & SentTask::kHasUses) != 0;
  for (int32_t i = 0;; ++i) {
    const Blob blob = blob_at(data);
    const size_t bytes = blob_bytes(blob.tensors.size(), blob.scalars.size());
    if (i == member) return {data, static_cast<uint32_t>(bytes)};
    data += bytes + (has_uses ? use_bytes(blob.tensors.size()) : 0);
  }
}

std::vector<AddressSpan> memory_of(const SentTask& record) {
  std::vector<AddressSpan> found;
  if ((record.flags & SentTask::kHasArguments) == 0) return found;
  for (int32_t member = 0; member < record.members; ++member) {
    for (const pto_tensor& tensor : blob_at(blob_of(record, member).data).tensors) {
      uint64_t bytes = 0;
      if (!tensor.child_memory && count_bytes(tensor, &bytes))
        found.push_back({tensor.data, tensor.data + bytes});
    }
  }
  return found;
}

void write_uses(const BlobPlace& blob, bool receives_use) {
  const size_t tensors = blob_at(blob.data).tensors.size();
  auto* tensor = reinterpret_cast<pto_tensor*>(blob.data + kBlobHeadBytes);
  const std::byte* uses = blob.data + blob.bytes;
  for (size_t i = 0; i < tensors; ++i) {
    const auto use = receives_use ? static_cast<uint8_t>(uses[i]) : uint8_t{0};
    if (tensor[i].use != use) tensor[i].use = use;
  }
}

}  // namespace pto::worker
