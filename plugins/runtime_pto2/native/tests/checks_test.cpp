// Invalid options and submits. Each error names the argument and its value, and says how to correct
// it.
#include <string>

#include "check.hpp"
#include "one_thread.hpp"
#include "submission.hpp"

namespace {

alignas(1024) char bytes[1 << 12];
const uint64_t kFirst = reinterpret_cast<uint64_t>(bytes);

struct Refusal {
  const char* key;
  const char* value;
  std::vector<std::string> parts;
};

TEST(options_outside_their_range_are_refused) {
  const Refusal refusals[] = {
      {"task_window", "3", {"task_window", "\"3\"", "minimum is 4", "power of two"}},
      {"task_window", "100", {"\"100\"", "power of two"}},
      {"task_window", "16,16,16", {"\"16,16,16\"", "four"}},
      {"task_window", "16,16,16,17", {"power of two"}},
      {"task_window", "", {"one number"}},
      {"task_window", "16 ", {"one number"}},
      {"task_window", "0x10", {"one number"}},
      {"task_window", "-4", {"one number"}},
      {"task_window", "99999999999999999999999", {"one number"}},
      {"task_window", "33554432", {"maximum"}},
      {"heap", "1000", {"minimum is 1024"}},
      {"heap", "1500", {"multiple of 1024"}},
      {"dep_pool", "4", {"dep_pool", "\"4\"", "minimum is 16"}},
      {"tensor_map_pool", "1", {"minimum"}},
      {"ready_queue_shards", "0", {"minimum is 1"}},
      {"ready_queue_shards", "1,1,1,1", {"one number"}},
      {"window", "16", {"no option \"window\"", "task_window"}},
  };
  for (const Refusal& refusal : refusals) {
    OneThread device(1, {{refusal.key, refusal.value}});
    CHECK_EQUAL(device.status(), PTO_ERROR_USAGE);
    for (const std::string& part : refusal.parts) CHECK_CONTAINS(device.error().message, part);
  }
}

TEST(options_take_one_value_or_four) {
  CHECK_EQUAL(OneThread(1, {{"task_window", "4"}, {"heap", "1024"}}).status(), PTO_OK);
  CHECK_EQUAL(OneThread(1, {{"task_window", "4,8,16,32"}, {"dep_pool", "16,17,18,19"}}).status(),
              PTO_OK);
}

// Runs one submit that must fail. Checks its message and position, and that later calls do nothing.
template <class Build>
void check_refused(pto_status expected, const std::vector<std::string>& parts, Build build) {
  OneThread device(1, {{"heap", "4096"}, {"task_window", "8"}, {"tensor_map_pool", "16"}});
  const pto_status status = device.run([&] {
    CHECK_EQUAL(build(device), int64_t{-1});
    CHECK_EQUAL(Submission(device).submit(), int64_t{-1});
    CHECK_EQUAL(device.api().scope_begin(device.runtime(), nullptr, -1), expected);
  });
  const std::string message = device.error().message;
  if (status != expected) check::fail(__FILE__, __LINE__, std::to_string(status) + ": " + message);
  for (const std::string& part : parts) CHECK_CONTAINS(message, part);
  CHECK_EQUAL(std::string(device.error().file), kFile);
  CHECK_EQUAL(device.error().line, 7);
  CHECK_EQUAL(device.run([&] { CHECK(Submission(device).submit() >= 0); }), PTO_OK);
}

TEST(kernels_that_do_not_fit_are_refused) {
  check_refused(PTO_ERROR_USAGE, {"function id 77", "registered: 0"}, [](OneThread& device) {
    Submission submission(device);
    submission.task().func_id = 77;
    return submission.submit();
  });
  check_refused(PTO_ERROR_USAGE, {"worker type 3", "AIC", "AIV"}, [](OneThread& device) {
    Submission submission(device);
    submission.task().core_type = 3;
    return submission.submit();
  });
}

TEST(parameters_that_do_not_fit_are_refused) {
  const auto with = [](uint32_t tag, pto_tensor_data tensor) {
    return [=](OneThread& device) {
      pto_tensor_data copy = tensor;
      return Submission(device).tensor(tag, copy).submit();
    };
  };
  for (const uint32_t tag :
       {PTO_TAG_INPUT, PTO_TAG_INOUT, PTO_TAG_OUTPUT_EXISTING, PTO_TAG_NO_DEP}) {
    check_refused(PTO_ERROR_USAGE, {"parameter 0", "address 0"}, with(tag, unplaced(16)));
  }
  check_refused(PTO_ERROR_USAGE, {"exceeds its buffer", "[10, 30)", "20"},
                with(PTO_TAG_INPUT, bytes_at(kFirst, 20, 10, 20)));
  check_refused(PTO_ERROR_USAGE, {"tag 9"}, with(9, bytes_at(kFirst, 16)));
  pto_tensor_data odd = bytes_at(kFirst, 16);
  odd.ndims = 6;
  check_refused(PTO_ERROR_USAGE, {"6 dimensions"}, with(PTO_TAG_INPUT, odd));
  odd = bytes_at(kFirst, 16);
  odd.dtype = 99;
  check_refused(PTO_ERROR_USAGE, {"data type code 99"}, with(PTO_TAG_INPUT, odd));
  odd = bytes_at(kFirst, 16);
  odd.order[0] = 1;
  check_refused(PTO_ERROR_USAGE, {"permutation"}, with(PTO_TAG_INPUT, odd));
  odd = unplaced(uint64_t{1} << 62);
  odd.raw_shapes[1] = odd.shapes[1] = 16;
  odd.order[1] = 1;
  odd.ndims = 2;
  check_refused(PTO_ERROR_USAGE, {"larger than"}, with(PTO_TAG_OUTPUT, odd));
  odd = bytes_at(kFirst, 16);
  odd.owner = 4000;
  check_refused(PTO_ERROR_USAGE, {"scope"}, with(PTO_TAG_INPUT, odd));
  check_refused(PTO_ERROR_USAGE, {"null pointer"}, [](OneThread& device) {
    Submission submission(device);
    pto_tensor_data tensor = bytes_at(kFirst, 16);
    submission.tensor(PTO_TAG_INPUT, tensor);
    pto_param param{};
    submission.task().params = &param;
    submission.task().num_params = 1;
    return device.api().submit_tensors(device.runtime(), &submission.task());
  });
}

// Invariant: Input that exceeds a limit is an error that names the limit. It is never truncated.
TEST(too_much_is_refused_and_never_cut) {
  check_refused(PTO_ERROR_CAPACITY, {"more than 32 tensors"}, [](OneThread& device) {
    pto_tensor_data tensor = bytes_at(kFirst, 16);
    Submission submission(device);
    for (int index = 0; index < 33; ++index) submission.tensor(PTO_TAG_INPUT, tensor);
    return submission.submit();
  });
  check_refused(PTO_ERROR_CAPACITY, {"more than 32 scalars"}, [](OneThread& device) {
    Submission submission(device);
    for (int index = 0; index < 33; ++index) submission.scalar(1);
    return submission.submit();
  });
  check_refused(PTO_ERROR_CAPACITY, {"scalars", "block_dim"}, [](OneThread& device) {
    Submission submission(device);
    for (int index = 0; index < 31; ++index) submission.scalar(1);
    return submission.blocks(2).submit();
  });
  check_refused(PTO_ERROR_CAPACITY, {"never fit", "PTO2_RING_HEAP=8192"}, [](OneThread& device) {
    pto_tensor_data tensor = unplaced(8192);
    return Submission(device).tensor(PTO_TAG_OUTPUT, tensor).submit();
  });
  check_refused(PTO_ERROR_CAPACITY, {"65 parameters", "32 tensors and 32 scalars"},
                [](OneThread& device) {
                  Submission submission(device);
                  for (int index = 0; index < 65; ++index) submission.scalar(1);
                  return submission.submit();
                });
  check_refused(
      PTO_ERROR_CAPACITY,
      {"takes 20 entries", "tensor map's pool, which has 16", "PTO_PTO2_TENSOR_MAP_POOL=20"},
      [](OneThread& device) {
        pto_tensor_data tensors[20];
        Submission submission(device);
        for (int index = 0; index < 20; ++index) {
          tensors[index] = bytes_at(kFirst + index * 64, 64);
          submission.tensor(PTO_TAG_INOUT, tensors[index]);
        }
        return submission.submit();
      });
  check_refused(PTO_ERROR_CAPACITY, {"8 blocks", "task window", "PTO2_RING_TASK_WINDOW=16"},
                [](OneThread& device) { return Submission(device).blocks(8).submit(); });
}

TEST(clusters_that_nobody_allocated_are_refused) {
  check_refused(PTO_ERROR_USAGE, {"cluster 0", "allocate_cluster"}, [](OneThread& device) {
    const int32_t cluster = 0;
    return Submission(device).on(&cluster).submit();
  });
  check_refused(PTO_ERROR_USAGE, {"cluster -5"}, [](OneThread& device) {
    const int32_t clusters[2] = {device.api().allocate_cluster(device.runtime(), kFile, 7), -5};
    return Submission(device).blocks(2).on(clusters).submit();
  });
}

TEST(frees_and_scopes_have_to_match) {
  OneThread device(1, {});
  CHECK_EQUAL(device.run([&] {
    const int32_t cluster = device.api().allocate_cluster(device.runtime(), kFile, 7);
    CHECK_EQUAL(device.api().free_cluster(device.runtime(), cluster), PTO_OK);
    CHECK_EQUAL(device.api().free_cluster(device.runtime(), cluster), PTO_ERROR_USAGE);
  }),
              PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message, "not allocated");
  CHECK_EQUAL(
      device.run([&] { CHECK_EQUAL(device.api().scope_end(device.runtime()), PTO_ERROR_USAGE); }),
      PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message, "scope_begin");
}

TEST(calls_of_other_variants_are_refused) {
  OneThread device(1, {});
  CHECK_EQUAL(device.run([&] {
    pto_task task{};
    CHECK_EQUAL(device.api().submit(device.runtime(), &task), int64_t{-1});
  }),
              PTO_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(device.error().message, "tensors");
  CHECK_EQUAL(device.run([&] { device.api().publish(device.runtime(), 0); }),
              PTO_ERROR_UNSUPPORTED);
}

}  // namespace
