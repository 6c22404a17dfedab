// The behaviour of tensors and the orchestration interface. These tests use only the headers, not
// the runtime.
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "check.hpp"
#include "recorded_run.hpp"

namespace {

const uint64_t kMatrix[2] = {8, 16};
void* const kAddress = reinterpret_cast<void*>(0x4000);

Tensor external(uint64_t rows = 8, uint64_t columns = 16) {
  const uint64_t shapes[2] = {rows, columns};
  return make_tensor_external(kAddress, shapes, 2);
}

// Check that `body` causes one error, which contains `part` and the line of the call.
void check_error(const recorded_run::Body& body, const char* part) {
  const RecordedRun run = record(body);
  CHECK_EQUAL(run.errors.size(), size_t{1});
  CHECK_CONTAINS(run.errors[0], part);
  CHECK_CONTAINS(run.files[0], "tensor_test.cpp");
  CHECK(run.lines[0] > 0);
}

// Return the position in the buffer of each element, in the order of the tensor's elements.
std::vector<uint64_t> places(const Tensor& tensor) {
  const TensorData& data = tensor.data();
  std::vector<uint64_t> all(tensor.numel());
  for (uint64_t i = 0; i < all.size(); ++i) {
    uint64_t rest = i;
    all[i] = data.start_offset;
    for (uint32_t j = data.ndims; j-- > 0;) {
      all[i] += rest % data.shapes[j] * data.stride(j);
      rest /= data.shapes[j];
    }
  }
  return all;
}

TEST(a_new_tensor_has_the_requested_properties) {
  record([](PTO2Runtime*) {
    const Tensor tensor = make_tensor_external(kAddress, kMatrix, 2, DataType::INT16, 5);
    const TensorData& data = tensor.data();
    CHECK_EQUAL(data.buffer.addr, uint64_t{0x4000});
    CHECK_EQUAL(data.buffer.size, uint64_t{8 * 16 * 2});
    CHECK_EQUAL(data.raw_shapes[0], uint64_t{8});
    CHECK_EQUAL(data.shapes[1], uint64_t{16});
    CHECK_EQUAL(data.shapes[2], uint64_t{0});
    CHECK_EQUAL(data.start_offset, uint64_t{0});
    CHECK_EQUAL(data.ndims, 2u);
    CHECK(data.dtype == DataType::INT16);
    CHECK_EQUAL(data.version, 5);
    CHECK_EQUAL(data.owner, int64_t{-1});
    CHECK_EQUAL(tensor.numel(), uint64_t{128});
    CHECK(tensor.is_contiguous());
    CHECK_EQUAL(make_tensor(nullptr, 0).numel(), uint64_t{1});
    CHECK_EQUAL(make_tensor(kMatrix, 2).data().buffer.addr, uint64_t{0});
  });
}

TEST(views_of_views_add_their_offsets) {
  record([](PTO2Runtime*) {
    const uint64_t shapes[2] = {4, 8};
    const uint64_t offsets[2] = {2, 4};
    const Tensor outer = external().view(shapes, offsets);
    const uint64_t inner_shapes[2] = {1, 3};
    const uint64_t inner_offsets[2] = {1, 5};
    const Tensor inner = outer.view(inner_shapes, inner_offsets);
    CHECK_EQUAL(inner.data().offsets[0], uint64_t{3});
    CHECK_EQUAL(inner.data().offsets[1], uint64_t{9});
    CHECK_EQUAL(inner.data().start_offset, uint64_t{3 * 16 + 9});
    CHECK_EQUAL(inner.data().raw_shapes[0], uint64_t{8});
    CHECK(inner.is_contiguous());
    CHECK(!outer.is_contiguous());
  });
}

TEST(a_transposed_view_walks_the_same_elements) {
  record([](PTO2Runtime*) {
    const uint64_t shapes[3] = {2, 3, 4};
    const Tensor cube = make_tensor_external(kAddress, shapes, 3);
    const Tensor turned = cube.transpose(0, 2);
    CHECK_EQUAL(turned.data().shapes[0], uint64_t{4});
    CHECK_EQUAL(int{turned.data().order[0]}, 2);
    CHECK(!turned.is_contiguous());
    CHECK(turned.transpose(2, 0).is_contiguous());
    const std::vector<uint64_t> walked = places(turned);
    for (uint64_t i = 0; i < walked.size(); ++i) {
      const uint64_t a = i / 6, b = i / 2 % 3, c = i % 2;
      CHECK_EQUAL(walked[i], c * 12 + b * 4 + a);
    }
    const uint64_t part[3] = {2, 1, 2};
    const uint64_t at[3] = {1, 2, 0};
    CHECK_EQUAL(turned.view(part, at).data().start_offset, uint64_t{0 * 12 + 2 * 4 + 1});
    CHECK_EQUAL(turned.copy().view(part, at).data().start_offset, uint64_t{0 * 12 + 2 * 4 + 1});
    const uint64_t last[3] = {1, 1, 1};
    const uint64_t next[3] = {1, 0, 1};
    CHECK_EQUAL(turned.view(part, at).view(last, next).data().start_offset,
                uint64_t{1 * 12 + 2 * 4 + 2});
    // A transposed column is one row, which is contiguous.
    const uint64_t column[2] = {8, 1};
    const uint64_t start[2] = {0, 3};
    CHECK(!external().view(column, start).is_contiguous());
    CHECK(external(8, 1).transpose(0, 1).is_contiguous());
  });
}

TEST(a_reshape_keeps_the_places_of_the_elements) {
  record([](PTO2Runtime*) {
    const uint64_t flat[1] = {64};
    const uint64_t rows[2] = {4, 16};
    const uint64_t at[2] = {3, 0};
    const Tensor part = external().view(rows, at);
    const Tensor line = part.reshape(flat, 1);
    CHECK(places(line) == places(part));
    CHECK_EQUAL(line.data().raw_shapes[0], uint64_t{128});
    CHECK_EQUAL(line.data().offsets[0], uint64_t{48});
    const uint64_t blocks[3] = {2, 4, 8};
    const Tensor block = line.reshape(blocks, 3);
    CHECK(places(block) == places(part));
    // the block keeps its own shape, because its start, 48, is not a multiple of its rows of 32
    CHECK_EQUAL(block.data().raw_shapes[0], uint64_t{0 + 2});
    CHECK_EQUAL(block.data().start_offset, uint64_t{48});
    CHECK(places(block.reshape(rows, 2)) == places(part));
    CHECK_EQUAL(block.reshape(rows, 2).data().offsets[0], uint64_t{3});
    CHECK(places(external().reshape(kMatrix, 2)) == places(external()));
  });
}

TEST(every_copy_and_view_shows_the_address_after_the_submit) {
  const RecordedRun run = record([](PTO2Runtime* rt) {
    Tensor tensor = make_tensor(kMatrix, 2);
    const std::vector<Tensor> copies(3, tensor);
    const uint64_t shapes[2] = {2, 16};
    const uint64_t offsets[2] = {4, 0};
    const Tensor early = tensor.view(shapes, offsets);
    const Tensor turned = early.transpose(0, 1);
    const Tensor other = turned.copy();
    PTOParam params[] = {make_output_param(tensor), make_scalar_param(9)};
    CHECK_EQUAL(pto2_rt_submit_task(rt, 4, PTO2_WORKER_VECTOR, params, 2), int64_t{0});
    for (const Tensor& same : {copies[2], early, turned, other}) {
      CHECK_EQUAL(same.data().buffer.addr, uint64_t{0x100000});
      CHECK_EQUAL(same.data().buffer.size, uint64_t{8 * 16 * 4});
      CHECK_EQUAL(same.data().owner, int64_t{0});
    }
    Tensor later = tensor.view(shapes, offsets);
    CHECK_EQUAL(later.data().buffer.addr, uint64_t{0x100000});
    PTOParam reads[] = {make_input_param(early), make_inout_param(later)};
    pto2_rt_submit_task(rt, 5, PTO2_WORKER_CUBE, reads, 2);
  });
  CHECK(run.errors.empty());
  CHECK_EQUAL(run.tasks[0].task.func_id, 4);
  CHECK_EQUAL(run.tasks[0].task.core_type, PTO_CORE_AIV + 0);
  CHECK_EQUAL(run.tasks[0].scalars[1], uint64_t{9});
  CHECK_EQUAL(run.tasks[1].tensors[0].buffer.addr, uint64_t{0x100000});
  CHECK_EQUAL(run.tasks[1].tensors[0].owner, int64_t{0});
  CHECK_EQUAL(run.tasks[1].tags[1], uint32_t{PTO_TAG_INOUT});
  CHECK_CONTAINS(std::string(run.tasks[1].task.file), "tensor_test.cpp");
}

TEST(an_output_may_be_a_view_of_a_buffer_without_an_address) {
  record([](PTO2Runtime* rt) {
    Tensor tensor = make_tensor(kMatrix, 2);
    const uint64_t shapes[2] = {2, 16};
    const uint64_t offsets[2] = {4, 0};
    Tensor part = tensor.view(shapes, offsets);
    PTOParam params[] = {make_output_param(part)};
    pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1);
    CHECK_EQUAL(tensor.data().buffer.addr, uint64_t{0x100000});
    CHECK_EQUAL(tensor.data().owner, int64_t{0});
  });
  check_error(
      [](PTO2Runtime* rt) {
        Tensor tensor = make_tensor(kMatrix, 2);
        Tensor copy = tensor.copy();
        PTOParam params[] = {make_output_param(tensor), make_output_param(copy)};
        CHECK_EQUAL(pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2), int64_t{-1});
      },
      "output 1 of the task");
  check_error(
      [](PTO2Runtime* rt) {
        const uint64_t rows[2] = {2, 16};
        const uint64_t at[2] = {3, 0};
        const uint64_t square[2] = {1, 32};
        Tensor odd = make_tensor(kMatrix, 2).view(rows, at).reshape(square, 2);
        PTOParam params[] = {make_output_param(odd)};
        pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1);
      },
      "output 0 of the task");
}

TEST(parameters_keep_their_tensors_alive) {
  record([](PTO2Runtime* rt) {
    PTOParam params[2];
    {
      Tensor gone = external();
      params[0] = make_input_param(gone);
      params[1] = make_inout_param(external(3, 3));
    }
    const Tensor others[2] = {make_tensor(kMatrix, 2), make_tensor(kMatrix, 2)};
    pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2);
    CHECK_EQUAL(params[1].tensor.data().shapes[0], uint64_t{3});
  });
}

TEST(many_tensors_take_one_chunk) {
  record([](PTO2Runtime*) {
    const Tensor whole = external();
    const uint64_t shapes[2] = {1, 16};
    for (uint64_t i = 0; i < 100000; ++i) {
      const uint64_t offsets[2] = {i % 8, 0};
      const Tensor tensor = make_tensor(kMatrix, 2);
      const Tensor part = whole.view(shapes, offsets);
    }
    CHECK_EQUAL(pto_orchestration::current_pool->chunks(), uint64_t{1});
    CHECK_EQUAL(pto_orchestration::current_pool->live(), uint64_t{1});
  });
}

TEST(handles_may_outlive_each_other_and_the_run) {
  auto kept = std::make_unique<std::vector<Tensor>>();
  record([&](PTO2Runtime*) {
    const uint64_t shapes[2] = {2, 16};
    const uint64_t offsets[2] = {4, 0};
    for (int i = 0; i < 1000; ++i)
      kept->push_back(external().view(shapes, offsets).transpose(0, 1));
    kept->front() = kept->back();
    Tensor& same = kept->front();
    same = same;
    Tensor moved = std::move(same);
    kept->front() = moved;
    Tensor empty;
    moved = empty;
  });
  CHECK_EQUAL(kept->front().data().shapes[0], uint64_t{16});
  const uint64_t too_far[2] = {99, 99};
  kept->push_back(
      kept->front().view(too_far, too_far));  // reports no error, because the run is over
  CHECK(pto_orchestration::current_pool == nullptr);
}

TEST(wrong_views_are_errors_at_their_line) {
  const uint64_t big[2] = {8, 17};
  const uint64_t small[2] = {1, 1};
  const uint64_t far[2] = {8, 0};
  const uint64_t wrap[2] = {~uint64_t{0}, 2};
  const uint64_t zero[2] = {0, 0};
  const uint64_t flat[1] = {127};
  const uint64_t six[6] = {1, 1, 1, 1, 1, 1};
  check_error([&](PTO2Runtime*) { external().view(big, zero); }, "dimension 1");
  check_error([&](PTO2Runtime*) { external().view(small, far); }, "1 elements from 8");
  check_error([&](PTO2Runtime*) { external().view(small, wrap); }, "out of bounds");
  check_error([&](PTO2Runtime*) { external().view(nullptr, zero); }, "null pointer");
  check_error([&](PTO2Runtime*) { external().reshape(flat, 1); }, "128 elements to 127");
  check_error([&](PTO2Runtime*) { external().transpose(0, 1).reshape(kMatrix, 2); },
              "not contiguous");
  check_error([&](PTO2Runtime*) { external().reshape(six, 6); }, "6 dimensions");
  check_error([&](PTO2Runtime*) { external().transpose(0, 2); }, "transpose(0, 2)");
  check_error([&](PTO2Runtime*) { make_tensor(six, 6); }, "the maximum is 5");
  check_error([&](PTO2Runtime*) { make_tensor(nullptr, 2); }, "no shape");
  check_error([&](PTO2Runtime*) { make_tensor(wrap, 2); }, "2^64");
  check_error([&](PTO2Runtime*) { make_tensor(small, 2, static_cast<DataType>(99)); },
              "data type 99");
  check_error([&](PTO2Runtime*) { Tensor().view(small, zero); }, "empty");
  check_error([&](PTO2Runtime*) { CHECK_EQUAL(Tensor().numel(), uint64_t{1}); }, "empty");
}

int line_of_submit = 0;
void submit_empty(PTO2Runtime* rt) {
  PTOParam params[] = {make_scalar_param(1), make_input_param(Tensor())};
  line_of_submit = __LINE__ + 1;
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2);
}

TEST(wrong_submits_are_errors_at_their_line) {
  const RecordedRun run = record(submit_empty);
  CHECK_EQUAL(run.lines[0], line_of_submit);
  CHECK_CONTAINS(run.errors[0], "parameter 1");
  CHECK(run.tasks.empty());
  std::vector<PTOParam> many(65, make_scalar_param(0));
  const auto submit = [&](PTO2Runtime* rt, int32_t n) {
    pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, many.data(), n);
  };
  check_error([&](PTO2Runtime* rt) { submit(rt, 65); }, "65 parameters");
  check_error([&](PTO2Runtime* rt) { submit(rt, -1); }, "-1 parameters");
  check_error(
      [](PTO2Runtime* rt) { pto2_rt_submit_block_task(rt, 0, PTO2_WORKER_CUBE, nullptr, 0, 0); },
      "block_dim is 0");
  CHECK_EQUAL(record([&](PTO2Runtime* rt) { submit(rt, 64); }).tasks[0].tags.size(), size_t{64});
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
