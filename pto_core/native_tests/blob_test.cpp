// Tests of the argument blob: decoding returns the encoded values, and random bytes cause an error
// at worst.

#include "arguments/blob.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "engine/interface.hpp"
#include "pto/abi/dtype.h"

namespace {

using namespace pto::worker;

using Random = std::mt19937_64;

// Memory with exactly the size of the blob, so that a sanitizer reports a read past the end.
class Bytes {
 public:
  explicit Bytes(size_t size) : words_((size + 7) / 8), size_(size) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  std::span<const std::byte> all() { return {data(), size_}; }

 private:
  std::vector<uint64_t> words_;
  size_t size_;
};

pto_tensor some_tensor(Random& random) {
  pto_tensor tensor{};
  tensor.data = random() >> 8;
  tensor.ndims = static_cast<uint32_t>(random() % (PTO_MAX_DIMS + 1));
  for (uint32_t i = 0; i < tensor.ndims; ++i) tensor.shapes[i] = random() % 100;
  tensor.dtype = static_cast<uint8_t>(random() % PTO_DTYPE_COUNT);
  tensor.child_memory = random() % 2;
  return tensor;
}

bool is_same(const pto_tensor& a, const pto_tensor& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST(encoded_blobs_are_decoded) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<pto_tensor> tensors(random() % 20);
    std::vector<uint64_t> scalars(random() % 20);
    for (pto_tensor& tensor : tensors) tensor = some_tensor(random);
    for (uint64_t& scalar : scalars) scalar = random();
    Bytes bytes(blob_bytes(tensors.size(), scalars.size()));
    encode_blob({tensors, scalars}, bytes.data());
    const Blob blob = decode_blob(bytes.all());
    CHECK(std::ranges::equal(blob.tensors, tensors, is_same));
    CHECK(std::ranges::equal(blob.scalars, scalars));
  }
}

// Return whether the decoder refuses the bytes. Require that a refusal has a message.
bool is_refused(std::span<const std::byte> bytes) {
  try {
    const Blob blob = decode_blob(bytes);
    // Require that all pointers are inside the blob.
    CHECK(bytes.size() == blob_bytes(blob.tensors.size(), blob.scalars.size()));
    for (const pto_tensor& tensor : blob.tensors) {
      uint64_t size = 0;
      CHECK(count_bytes(tensor, &size) && tensor.data + size >= tensor.data);
    }
    return false;
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind == Refusal::Kind::kProtocol);
    CHECK_CONTAINS(refusal.what(), "arguments of a task");
    return true;
  }
}

// Invariant: Frames and arguments may contain any bytes: an invalid length or index is refused with
// a protocol error before use.
TEST(random_bytes_cause_at_most_a_refusal) {
  Random random(2);
  for (int round = 0; round < 200000; ++round) {
    Bytes bytes(random() % 300);
    for (size_t i = 0; i < bytes.all().size(); ++i)
      bytes.data()[i] = static_cast<std::byte>(random());
    if (bytes.all().size() >= 8 && round % 2 == 0) {  // write counts that are possible, to get
                                                      // further in the decoder
      const int32_t counts[2] = {static_cast<int32_t>(random() % 8),
                                 static_cast<int32_t>(random() % 8)};
      std::memcpy(bytes.data(), counts, sizeof counts);
    }
    is_refused(bytes.all());
  }
}

TEST(a_changed_blob_is_refused_or_valid) {
  Random random(3);
  int refused = 0;
  for (int round = 0; round < 100000; ++round) {
    const pto_tensor tensors[2] = {some_tensor(random), some_tensor(random)};
    const uint64_t scalars[1] = {random()};
    Bytes bytes(blob_bytes(2, 1));
    encode_blob({tensors, scalars}, bytes.data());
    bytes.data()[random() % bytes.all().size()] ^= static_cast<std::byte>(1 << random() % 8);
    refused += is_refused(bytes.all());
  }
  CHECK(refused > 10000 && refused < 100000);
}

void refuses(const pto_tensor& tensor) {
  Bytes bytes(blob_bytes(1, 0));
  encode_blob({{&tensor, 1}, {}}, bytes.data());
  CHECK(is_refused(bytes.all()));
}

TEST(impossible_tensors_are_refused) {
  Random random(4);
  pto_tensor good{};
  good.ndims = 2;
  good.shapes[0] = good.shapes[1] = 4;
  pto_tensor bad = good;
  bad.dtype = PTO_DTYPE_COUNT;
  refuses(bad);
  bad = good;
  bad.ndims = PTO_MAX_DIMS + 1;
  refuses(bad);
  bad = good;
  bad.child_memory = 2;
  refuses(bad);
  bad = good;
  bad.data = UINT64_MAX - 60;
  refuses(bad);
  bad = good;
  bad.ndims = 3;
  std::fill(bad.shapes, bad.shapes + 3, UINT32_MAX);
  refuses(bad);
}

TEST(an_empty_dimension_hides_the_others) {
  pto_tensor tensor{};
  tensor.ndims = PTO_MAX_DIMS;
  std::fill(tensor.shapes, tensor.shapes + PTO_MAX_DIMS, UINT32_MAX);
  uint64_t bytes = 1;
  CHECK(!count_bytes(tensor, &bytes));
  tensor.shapes[4] = 0;
  CHECK(count_bytes(tensor, &bytes));
  CHECK_EQUAL(bytes, 0u);
}

TEST(every_wrong_length_is_refused) {
  const pto_tensor tensors[2] = {};
  const uint64_t scalars[3] = {};
  Bytes whole(blob_bytes(2, 3) + 16);
  encode_blob({tensors, scalars}, whole.data());
  for (size_t size = 0; size < blob_bytes(2, 3) + 16; ++size) {
    Bytes part(size);
    std::copy_n(whole.data(), size, part.data());
    CHECK(is_refused(part.all()) == (size != blob_bytes(2, 3)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
