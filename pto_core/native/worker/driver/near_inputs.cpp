#include "driver/near_inputs.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "arguments/blob.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

RemoteCopies::Parts::iterator RemoteCopies::split(uint64_t at) {
  const auto next = parts_.lower_bound(at);
  if (next == parts_.begin()) return next;
  const auto last = std::prev(next);
  if (last->second.end <= at) return next;
  const auto made = parts_.emplace_hint(next, at, last->second);
  last->second.end = at;
  return made;
}

void RemoteCopies::add(ByteRange range, int32_t child) {
  if (parts_.size() >= kMost) parts_.clear();
  auto part = split(range.begin);
  split(range.end);
  for (uint64_t at = range.begin; at < range.end; at = part->second.end, ++part) {
    if (part == parts_.end() || part->first > at) {
      const uint64_t end = part == parts_.end() ? range.end : std::min(part->first, range.end);
      part = parts_.emplace_hint(part, at, Part{end, {child}});
      continue;
    }
    auto& children = part->second.children;
    if (std::find(children.begin(), children.end(), child) == children.end())
      children.push_back(child);
  }
}

void RemoteCopies::replace(ByteRange range, int32_t child) {
  if (parts_.size() >= kMost) parts_.clear();
  const auto first = split(range.begin);
  const auto last = split(range.end);
  parts_.erase(first, last);
  if (child != kNone) parts_.emplace(range.begin, Part{range.end, {child}});
}

void RemoteCopies::forget(int32_t child) {
  for (auto part = parts_.begin(); part != parts_.end();) {
    auto& children = part->second.children;
    children.erase(std::remove(children.begin(), children.end(), child), children.end());
    part = children.empty() ? parts_.erase(part) : std::next(part);
  }
}

void RemoteCopies::count(ByteRange range, std::span<uint64_t> held) const {
  auto part = parts_.upper_bound(range.begin);
  if (part != parts_.begin() && std::prev(part)->second.end > range.begin) --part;
  for (; part != parts_.end() && part->first < range.end; ++part) {
    const uint64_t bytes =
        std::min(part->second.end, range.end) - std::max(part->first, range.begin);
    for (const int32_t child : part->second.children) held[static_cast<size_t>(child)] += bytes;
  }
}

int32_t nearest(std::span<const Candidate> candidates, std::span<const uint64_t> missing,
                int32_t preferred) {
  const auto rank = [&](size_t i) {
    const Candidate& each = candidates[i];
    const uint64_t moves = std::min(missing[i] / NearInputs::kTaskBytes, NearInputs::kMostTasks);
    return std::tuple(each.in_flight + moves, each.in_flight, missing[i], each.child != preferred);
  };
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); ++i)
    if (rank(i) < rank(best)) best = i;
  return candidates[best].child;
}

void NearInputs::attach(Records& records, const std::vector<ChildConfiguration>& children,
                        const Catalogue* catalogue) {
  records_ = &records;
  catalogue_ = catalogue;
  is_remote_.clear();
  for (const ChildConfiguration& child : children) is_remote_.push_back(child.receives_use);
  held_.assign(children.size(), 0);
}

template <class Visit>
void NearInputs::visit_tensors(const SentTask& record, int32_t member, Visit&& visit) const {
  constexpr uint8_t kKnown = SentTask::kHasArguments | SentTask::kHasUses;
  if ((record.flags & kKnown) != kKnown) return;
  const BlobPlace blob = blob_of(record, member);
  const std::byte* uses = blob.data + blob.bytes;
  const std::span tensors = blob_at(blob.data).tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t bytes = 0;
    const bool counts = !tensors[i].child_memory && count_bytes(tensors[i], &bytes);
    if (!counts || bytes < kSmallest) continue;
    visit(ByteRange{tensors[i].data, tensors[i].data + bytes}, static_cast<uint8_t>(uses[i]));
  }
}

void NearInputs::sent(const SentTask& record, int32_t member, int32_t child) {
  visit_tensors(record, member, [&](ByteRange range, uint8_t use) {
    const auto tag = static_cast<Tag>((use & PTO_USE_TAG) - 1);
    const int32_t holder = is_remote(child) ? child : static_cast<int32_t>(kNone);
    if (tag != Tag::kInput && tag != Tag::kNoDep)
      copies_.replace(range, holder);
    else if (holder != kNone)
      copies_.add(range, holder);
  });
}

uint64_t NearInputs::count(const SentTask& record) {
  std::fill(held_.begin(), held_.end(), 0);
  uint64_t needed = 0;
  visit_tensors(record, 0, [&](ByteRange range, uint8_t use) {
    if ((use & PTO_USE_ALLOCATED) != 0) return;  // has no content before the task
    needed += range.end - range.begin;
    copies_.count(range, held_);
  });
  for (size_t child = 0; child < held_.size(); ++child)
    if (!is_remote_[child]) held_[child] = needed;
  return needed;
}

NearInputs::Facts NearInputs::facts(std::span<const int32_t> children, int64_t task) {
  Facts found;
  const SentTask* record = records_ ? records_->find(task) : nullptr;
  if (record) {
    found.input_bytes = count(*record);
    if (catalogue_) found.callable = catalogue_->name(record->callable);
  }
  for (const int32_t child : children)
    found.held_bytes.push_back(record ? held_[static_cast<size_t>(child)] : 0);
  return found;
}

int32_t NearInputs::pick(std::span<const Candidate> candidates, int32_t preferred, int64_t task) {
  missing_.assign(candidates.size(), 0);
  const SentTask* record = records_ ? records_->find(task) : nullptr;
  if (record) {
    const uint64_t needed = count(*record);
    for (size_t i = 0; i < candidates.size(); ++i)
      missing_[i] = needed - held_[static_cast<size_t>(candidates[i].child)];
  }
  return nearest(candidates, missing_, preferred);
}

}  // namespace pto::worker
