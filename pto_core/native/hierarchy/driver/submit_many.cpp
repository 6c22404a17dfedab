// Submits many tasks in one call. Each task gets one part of every tensor.
#include <algorithm>
#include <cstring>

#include "arguments/visible_memory.hpp"
#include "data_types.hpp"
#include "driver/draft_loan.hpp"
#include "driver/or_error.hpp"
#include "driver/task_handle.hpp"
#include "errors.hpp"
#include "host_array.hpp"
#include "scalars.hpp"

namespace pto::hierarchy {
namespace {

[[noreturn]] void refuse_scalars(PyObject* object) {
  core::raise_usage("scalars is " + core::shown(object) +
                    "; pass an array or a list of real numbers, with one number or one row of "
                    "numbers for each task");
}

// The scalars of the tasks: one row for each task. Each number has the bits that add_scalar() gives
// it.
class ScalarRows {
 public:
  explicit ScalarRows(PyObject* object) {
    if (!object || object == Py_None) return;
    is_given_ = true;
    if (PyList_Check(object) || PyTuple_Check(object)) {
      take_list(object);
    } else {
      take_array(object);
    }
  }

  bool is_given() const { return is_given_; }
  int64_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  const uint64_t* row(int64_t index) const {
    return values_.data() + static_cast<size_t>(index) * columns_;
  }

 private:
  void take_array(PyObject* object) {
    const core::HostArray array(
        object, false, [] { return std::string("scalars"); }, core::Advice::kPassCopy,
        ", or a list of numbers");
    const size_t dimensions = array.shape.size();
    if (dimensions < 1 || dimensions > 2) refuse_scalars(object);
    rows_ = array.shape[0];
    columns_ = dimensions == 1 ? 1 : static_cast<size_t>(array.shape[1]);
    const size_t bytes = core::element_bytes(array.code);
    values_.resize(static_cast<size_t>(rows_) * columns_);
    for (size_t i = 0; i < values_.size(); ++i) {
      const auto scalar =
          core::scalar_in_memory(static_cast<const std::byte*>(array.data) + i * bytes, array.code);
      if (!scalar) refuse_scalars(object);
      values_[i] = scalar->bits;
    }
  }

  void take_list(PyObject* list) {
    rows_ = PySequence_Fast_GET_SIZE(list);
    for (int64_t i = 0; i < rows_; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(list, i);
      const size_t before = values_.size();
      if (const auto scalar = core::scalar_of(item)) {
        values_.push_back(scalar->bits);
      } else {
        take_row(list, item);
      }
      const size_t columns = values_.size() - before;
      if (i == 0) columns_ = columns;
      if (columns != columns_) refuse_scalars(list);
    }
  }

  void take_row(PyObject* list, PyObject* row) {
    const nb::object items = nb::steal(PySequence_Fast(row, ""));
    PyErr_Clear();
    if (!items.is_valid()) refuse_scalars(list);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
      const auto scalar = core::scalar_of(PySequence_Fast_GET_ITEM(items.ptr(), i));
      if (!scalar) refuse_scalars(list);
      values_.push_back(scalar->bits);
    }
  }

  bool is_given_ = false;
  int64_t rows_ = 0;
  size_t columns_ = 0;
  std::vector<uint64_t> values_;
};

void check_rows(int64_t* count, int64_t rows, const std::string& what) {
  if (*count < 0) *count = rows;
  if (*count == rows) return;
  core::raise_usage(what + " has " + std::to_string(rows) + " parts along its first dimension, " +
                    "but others have " + std::to_string(*count) + "; pass one part for each task");
}

// Store the tensors of one task, without the first dimension, in `tensors` and `keys`. Return the
// number of tasks.
int64_t cut(const TaskArgs& args, const ScalarRows& rows, VisibleMemory& memory,
            std::vector<pto_tensor>* tensors, std::vector<Tensor>* keys) {
  int64_t count = -1;
  for (uint32_t i = 0; i < args.tensor_count; ++i) {
    pto_tensor tensor = args.tensors()[i];
    const std::string name = "tensor " + std::to_string(i);
    if (tensor.ndims < 1 || tensor.data == 0) {
      core::raise_usage(name + " of submit_many has no first dimension, or no address; pass an " +
                        "array with one part for each task");
    }
    if (args.notes[i].tensor->origin == Origin::kArray)
      check_visible(memory, *args.notes[i].tensor, i);
    check_rows(&count, tensor.shapes[0], name);
    const uint64_t bytes = args.notes[i].tensor->bytes;
    std::copy(tensor.shapes + 1, tensor.shapes + PTO_MAX_DIMS, tensor.shapes);
    tensor.shapes[PTO_MAX_DIMS - 1] = 0;
    tensor.ndims -= 1;
    tensors->push_back(tensor);
    keys->push_back({tensor.data, count > 0 ? bytes / static_cast<uint64_t>(count) : 0, nullptr,
                     args.notes[i].tag});
  }
  if (rows.is_given()) check_rows(&count, rows.rows(), "scalars");
  if (count < 0)
    core::raise_usage(
        "submit_many was called without tensors and scalars; pass at least one of them");
  return count;
}

}  // namespace

nb::object Submits::submit_many(const SubmitRequest& request, PyObject* scalars) {
  DraftLoan loan(*this);
  Draft& draft = *loan;
  Call call = begin_call(request, draft);
  TaskArgs* args = request.args ? task_args_of(request.args) : nullptr;
  if (!args) core::raise_usage("submit_many needs a TaskArgs with the tensors of all tasks");
  args->take_addresses();
  draft.args.push_back(args);
  if (call.run) Captures::check_origins(draft.args);
  read_producers(request, draft);
  call.after = draft.after;
  const ScalarRows rows(scalars);
  std::vector<pto_tensor> tensors;
  const int64_t count = cut(*args, rows, memory_for(call), &tensors, &draft.keys);
  for (const pto_tensor& tensor : tensors) draft.has_child_memory |= tensor.child_memory != 0;
  if (draft.has_child_memory) place_by_memory(request, draft, &call);
  if (!draft.workers.empty()) place_by_callable(request, draft, &call);
  const size_t fixed = args->scalar_count;
  std::vector<uint64_t> values(fixed + rows.columns());
  std::copy(args->scalars().begin(), args->scalars().end(), values.begin());
  draft.members.push_back({tensors, draft.keys, values});
  call.members = draft.members;
  const auto prepare = [&](int64_t index) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].data =
          args->tensors()[i].data + draft.keys[i].bytes * static_cast<uint64_t>(index);
      draft.keys[i].address = tensors[i].data;
    }
    if (rows.columns() > 0)
      std::memcpy(values.data() + fixed, rows.row(index), rows.columns() * sizeof(uint64_t));
  };
  TaskRange made;
  const auto keep_arrays = [&] {
    if (draft.has_child_memory && call.run && made.last != kNone)
      memory_.add_uses(draft.keys, made, driver_.flags().oldest_live);
    for (uint32_t i = 0; i < args->tensor_count && made.last != kNone; ++i)
      keep(args->notes[i].tensor->owner, made.last);
  };
  try {
    or_error([&] { submit_each(*request.run, call, count, prepare, made); });
  } catch (...) {
    keep_arrays();
    throw;
  }
  keep_arrays();
  Py_CLEAR(args->producers);
  drop_kept(driver_.flags().oldest_live);
  const int64_t begin = std::max<int64_t>(made.first, 0);
  return nb::module_::import_("builtins").attr("range")(begin, made.last + 1);
}

void Submits::submit_each(const RunObject& run, const Call& call, int64_t count,
                          const std::function<void(int64_t)>& prepare, TaskRange& made) {
  if (call.run) return driver_.submit_each(call, count, prepare, made);
  for (int64_t i = 0; i < count; ++i) {
    prepare(i);
    made.add(submit_call(run, call));
  }
}

}  // namespace pto::hierarchy
