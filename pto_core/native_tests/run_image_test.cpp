#include "pto/engine/run_image.hpp"

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"

namespace {

using pto::engine::read_run_image;
using pto::engine::run_image_bytes;
using pto::engine::write_run_image;

constexpr uint64_t kLibraryOnDevice = 99;

// An image in memory of exactly its size, so that a sanitizer sees each access beyond its end.
using Bytes = std::unique_ptr<char, decltype(&std::free)>;

Bytes copy_of(const std::vector<char>& content) {
  Bytes bytes(static_cast<char*>(std::malloc(content.size())), std::free);
  std::memcpy(bytes.get(), content.data(), content.size());
  return bytes;
}

struct Example {
  std::vector<pto_kernel_entry> kernels = {{3, PTO_CORE_AIV, 0x1000, "add", nullptr},
                                           {9, PTO_CORE_AIC, 0x2000, "mul", nullptr}};
  std::vector<uint64_t> args = {1, 2, 3, ~uint64_t{0}};
  pto_host_range range = {0x5000, 64};
  pto_call_config config{};
  std::string entry = "build_graph";
  pto_run run{};

  Example() {
    config.block_dim = 7;
    run.kernels = kernels.data();
    run.num_kernels = static_cast<uint32_t>(kernels.size());
    run.args = args.data();
    run.num_args = static_cast<uint32_t>(args.size());
    run.ranges = &range;
    run.num_ranges = 1;
    run.hazards = PTO_HAZARDS_FULL;
    run.library = 5;
    run.entry = entry.c_str();
    run.config = &config;
    run.attend = [](void*) {};
  }

  std::vector<char> image() const {
    std::vector<char> bytes(run_image_bytes(run));
    write_run_image(run, bytes.data());
    return bytes;
  }
};

}  // namespace

TEST(a_run_is_the_same_after_the_trip) {
  const Example example;
  std::vector<char> image = example.image();
  const Bytes moved = copy_of(image);  // the image contains no address of its own
  image.assign(image.size(), 'x');
  pto_run run{};
  CHECK(read_run_image(moved.get(), image.size(), kLibraryOnDevice, run));
  CHECK_EQUAL(run.num_kernels, 2u);
  CHECK_EQUAL(run.kernels[1].func_id, 9);
  CHECK_EQUAL(run.kernels[1].core_type, PTO_CORE_AIC);
  CHECK_EQUAL(run.kernels[1].address, uint64_t{0x2000});
  CHECK_EQUAL(run.num_args, 4u);
  CHECK_EQUAL(run.args[3], ~uint64_t{0});
  CHECK_EQUAL(run.hazards, uint32_t{PTO_HAZARDS_FULL});
  CHECK_EQUAL(std::string(run.entry), "build_graph");
  CHECK_EQUAL(run.config->block_dim, 7);
}

TEST(what_only_the_host_uses_stays_there) {
  const Example example;
  const std::vector<char> image = example.image();
  const Bytes moved = copy_of(image);
  pto_run run{};
  CHECK(read_run_image(moved.get(), image.size(), kLibraryOnDevice, run));
  CHECK_EQUAL(run.library, kLibraryOnDevice);
  CHECK(run.kernels[0].name == nullptr);
  CHECK(run.ranges == nullptr && run.num_ranges == 0);
  CHECK(run.attend == nullptr);
}

TEST(an_empty_run_has_an_image) {
  const pto_run empty{};
  std::vector<char> image(run_image_bytes(empty));
  write_run_image(empty, image.data());
  const Bytes moved = copy_of(image);
  pto_run run{};
  CHECK(read_run_image(moved.get(), image.size(), 0, run));
  CHECK_EQUAL(run.num_kernels + run.num_args, 0u);
  CHECK(run.entry == nullptr && run.config == nullptr);
}

TEST(a_truncated_image_is_refused) {
  const std::vector<char> whole = Example().image();
  for (size_t length = 1; length < whole.size(); ++length) {
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    const Bytes moved = copy_of(part);
    pto_run run{};
    CHECK(!read_run_image(moved.get(), part.size(), 0, run));
  }
}

// Invariant: The bytes of a run's image are refused, or each part that they name lies inside them.
TEST(changed_bytes_never_lead_outside) {
  std::mt19937_64 random(1);
  const std::vector<char> whole = Example().image();
  uint64_t accepted = 0, sum = 0;
  for (int round = 0; round < 200000; ++round) {
    std::vector<char> image = whole;
    for (uint64_t changes = random() % 4 + 1; changes > 0; --changes) {
      image[random() % sizeof(pto_run_image)] = static_cast<char>(random());
    }
    const Bytes moved = copy_of(image);
    pto_run run{};
    if (!read_run_image(moved.get(), image.size(), 0, run)) continue;
    ++accepted;
    for (uint32_t i = 0; i < run.num_kernels; ++i) sum += run.kernels[i].address;
    for (uint32_t i = 0; i < run.num_args; ++i) sum += run.args[i];
    if (run.entry != nullptr) sum += std::strlen(run.entry);
    if (run.config != nullptr) sum += static_cast<uint64_t>(run.config->output_prefix[1023]);
  }
  CHECK(accepted > 100 && accepted < 200000 && sum != 1);
}

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
