// The policy near_inputs: the copies of children, compared with a model that stores the holders of
// each byte, and the choice, compared with the definition.
//
// Invariant of this file: The policy near_inputs picks one of the candidates. A child on another
// host has what it read or wrote last, until another child writes it or the child is lost.
//
// Arguments: a seed and a number of rounds. The last line of the output has the seed of a failure.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include "arguments/blob.hpp"
#include "check.hpp"
#include "driver/near_inputs.hpp"
#include "pto/abi/dtype.h"

namespace {

using namespace pto::worker;

constexpr uint64_t kMemory = uint64_t{1} << 33;
constexpr uint64_t kBytes = 64;
constexpr int32_t kChildren = 5;
constexpr auto kHome = static_cast<int32_t>(kNone);

uint64_t below(std::mt19937_64& random, uint64_t end) {
  return random() % end;
}

ByteRange any_range(std::mt19937_64& random) {
  const uint64_t begin = below(random, kBytes);
  return {kMemory + begin, kMemory + begin + 1 + below(random, kBytes - begin)};
}

void copies_equal_a_model(std::mt19937_64& random) {
  RemoteCopies copies;
  std::vector<std::set<int32_t>> model(kBytes);
  for (int step = 0; step < 200; ++step) {
    const ByteRange range = any_range(random);
    const auto child = static_cast<int32_t>(below(random, kChildren));
    const uint64_t what = below(random, 16);
    if (what == 0) {
      copies.forget(child);
      for (auto& holders : model) holders.erase(child);
    }
    for (uint64_t at = range.begin - kMemory; at < range.end - kMemory && what > 0; ++at) {
      if (what > 8) model[at].clear();
      if (what != 9) model[at].insert(child);
    }
    if (what > 8) copies.replace(range, what == 9 ? kHome : child);
    if (what > 0 && what <= 8) copies.add(range, child);

    const ByteRange asked = any_range(random);
    std::vector<uint64_t> held(kChildren), expected(kChildren);
    copies.count(asked, held);
    for (uint64_t at = asked.begin - kMemory; at < asked.end - kMemory; ++at)
      for (const int32_t holder : model[at]) ++expected[static_cast<size_t>(holder)];
    CHECK(held == expected);
  }
}

void choice_equals_its_definition(std::mt19937_64& random) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const uint64_t sizes[] = {0, 1, kMiB, 16 * kMiB - 1, 16 * kMiB, 40 * kMiB, 900 * kMiB};
  for (int step = 0; step < 200; ++step) {
    std::vector<Candidate> candidates;
    std::vector<uint64_t> missing;
    for (int32_t child = 0; child < kChildren; ++child) {
      if (below(random, 2) == 0) continue;
      candidates.push_back({child, below(random, 4)});
      missing.push_back(sizes[below(random, std::size(sizes))]);
    }
    if (candidates.empty()) continue;
    const auto preferred = static_cast<int32_t>(below(random, kChildren + 1)) - 1;
    const int32_t picked = nearest(candidates, missing, preferred);
    const auto cost = [&](size_t i) {
      return candidates[i].in_flight + (missing[i] >= 32 * kMiB   ? 2
                                        : missing[i] >= 16 * kMiB ? 1
                                                                  : 0);
    };
    size_t best = candidates.size();
    for (size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].child == picked) best = i;
    CHECK(best < candidates.size());
    for (size_t i = 0; i < candidates.size(); ++i) {
      CHECK(cost(best) <= cost(i));
      if (cost(best) != cost(i)) continue;
      CHECK(candidates[best].in_flight <= candidates[i].in_flight);
      if (candidates[best].in_flight != candidates[i].in_flight) continue;
      CHECK(missing[best] <= missing[i]);
      if (missing[best] != missing[i]) continue;
      const bool is_preferred = candidates[best].child == preferred;
      CHECK(is_preferred || candidates[i].child != preferred);
      if (!is_preferred) CHECK(best <= i);
    }
  }
}

// A task with one tensor, as the driver records it.
struct Task {
  Records& records;
  int64_t number;

  Task(Records& all, int64_t task, uint64_t address, uint64_t bytes, Tag tag, bool is_new = false)
      : records(all), number(task) {
    pto_tensor tensor{};
    tensor.data = address;
    tensor.shapes[0] = static_cast<uint32_t>(bytes);
    tensor.ndims = 1;
    tensor.dtype = PTO_DTYPE_UINT8;
    SentTask& record = records.append(task, blob_bytes(1, 0) + use_bytes(1));
    record.flags |= SentTask::kHasArguments | SentTask::kHasUses;
    record.members = 1;
    encode_blob({{&tensor, 1}, {}}, record.blobs);
    const auto use = static_cast<uint8_t>(tag) + 1 + (is_new ? PTO_USE_ALLOCATED : 0);
    record.blobs[blob_bytes(1, 0)] = static_cast<std::byte>(use);
  }
  SentTask& record() { return *records.find(number); }
};

void the_holder_of_an_input_is_preferred() {
  constexpr uint64_t kSize = uint64_t{1} << 26;
  Records records;
  NearInputs policy;
  const std::vector<Candidate> remote = {{1, 1}, {2, 0}, {3, 0}};
  const std::vector<Candidate> all = {{0, 1}, {1, 1}, {2, 1}, {3, 0}};
  CHECK(policy.pick(remote, 1, 0) == 2);  // no driver
  policy.attach(records, {{Kind::kNextLevel, 4},
                          {Kind::kNextLevel, 4, true},
                          {Kind::kNextLevel, 4, true},
                          {Kind::kNextLevel, 4, true},
                          {Kind::kSub, 4}});
  Task read(records, 0, kMemory, kSize, Tag::kInput);
  CHECK(policy.pick(remote, 3, 0) == 3);
  CHECK(policy.pick(all, 3, 0) == 0);  // on this host
  policy.sent(read.record(), 0, 1);
  CHECK(policy.pick(remote, 3, 0) == 1);
  const std::vector<Candidate> busy = {{1, 3}, {2, 0}, {3, 1}};
  CHECK(policy.pick(busy, kHome, 0) == 2);  // the load outweighs the copy
  CHECK(policy.pick(remote, 3, 77) == 3);   // a task without a record

  Task write(records, 1, kMemory, kSize, Tag::kOutputExisting);
  policy.sent(write.record(), 0, 3);
  CHECK(policy.pick({{{1, 0}, {3, 1}}}, kHome, 0) == 3);
  policy.sent(write.record(), 0, 4);  // a SUB child of this host
  CHECK(policy.pick({{{1, 0}, {3, 1}}}, kHome, 0) == 1);
  policy.sent(write.record(), 0, 3);
  policy.lost(3);
  CHECK(policy.pick({{{1, 0}, {3, 1}}}, kHome, 0) == 1);

  // The memory that a submit allocates has no content before the task, but has it afterwards.
  Task made(records, 2, kMemory + kSize, kSize, Tag::kOutput, true);
  policy.sent(made.record(), 0, 2);
  CHECK(policy.pick(remote, 3, 2) == 3);
  Task user(records, 3, kMemory + kSize, kSize, Tag::kInput);
  CHECK(policy.pick({{{1, 0}, {2, 1}, {3, 0}}}, kHome, 3) == 2);
  policy.detach();
  CHECK(policy.pick(remote, 3, 3) == 3);
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t rounds = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 300;
  the_holder_of_an_input_is_preferred();
  for (uint64_t seed = first; seed < first + rounds; ++seed) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    copies_equal_a_model(random);
    choice_equals_its_definition(random);
  }
}
