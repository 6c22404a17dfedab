// The edges that the runtime records for random programs equal those of the oracle: every missing
// or additional edge is a failure. The runtime must omit no edge because its producer has retired.
// So no task retires before the program ends: the rings are large, and this platform steps no
// scheduler unless a call waits.
//
// Arguments: test name or "all", programs, first seed. A failure prints the seed of its program.
#include <numeric>
#include <random>
#include <string>

#include "edge_oracle.hpp"
#include "submission.hpp"

namespace {

using edge_oracle::Access;
using edge_oracle::Edges;
using edge_oracle::Oracle;
using edge_oracle::View;

uint64_t programs_from_arguments = 300;
uint64_t seed_from_arguments = 1;

constexpr uint64_t kMemory = 0x100000;  // address of the memory that contains the external buffers
constexpr uint64_t kBytes = 768;
constexpr int kTasks = 60;
constexpr uint32_t kTypes[] = {PTO_DTYPE_UINT8, PTO_DTYPE_UINT16, PTO_DTYPE_FLOAT32,
                               PTO_DTYPE_INT64};
constexpr uint64_t kTypeBytes[] = {1, 2, 4, 8};

// Memory with a shape. Several buffers may use the same memory with different shapes.
struct Buffer {
  uint64_t base;
  uint32_t type;  // index of kTypes
  std::vector<uint64_t> raw;
  int64_t owner = -1;

  uint64_t bytes() const {
    return std::accumulate(raw.begin(), raw.end(), kTypeBytes[type], std::multiplies<>());
  }
};

class RandomProgram {
 public:
  RandomProgram(OneThread& device, uint64_t seed, bool is_full)
      : device_(device), random_(seed), oracle_(is_full) {}

  void submit_all() {
    // Limits for this run, so that some runs use few shapes and buffers, and others many.
    most_dims_ = 1 + below(4);
    while (buffers_.size() < 2 + below(5)) buffers_.push_back(external());
    for (int task = 0; task < kTasks; ++task) {
      if (one_in(12) && scopes_.size() < 5) begin_scope();
      if (one_in(12) && !scopes_.empty()) end_scope();
      submit();
    }
    while (!scopes_.empty()) end_scope();
  }

  const Edges& expected() const { return oracle_.edges(); }

 private:
  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool one_in(uint64_t chances) { return below(chances) == 0; }

  void begin_scope() {
    CHECK_EQUAL(device_.api().scope_begin(device_.runtime(), nullptr, -1), PTO_OK);
    scopes_.push_back(heap_.size());
  }

  void end_scope() {
    CHECK_EQUAL(device_.api().scope_end(device_.runtime()), PTO_OK);
    heap_.resize(scopes_.back());
    scopes_.pop_back();
  }

  std::vector<uint64_t> shape(uint64_t elements) {
    std::vector<uint64_t> raw(1 + below(most_dims_));
    for (uint64_t& size : raw) {
      size = 1 + below(std::min<uint64_t>(elements, raw.size() == 1 ? 256 : 12));
      elements /= size;
    }
    std::shuffle(raw.begin(), raw.end(), random_);
    return raw;
  }

  // Return a buffer anywhere in the memory, or one that starts where another buffer starts, with
  // another type and shape.
  Buffer external() {
    Buffer buffer{kMemory + 8 * below(kBytes / 8 - 1), static_cast<uint32_t>(below(4)), {}};
    uint64_t end = kMemory + kBytes;
    if (!buffers_.empty() && one_in(2)) {
      const Buffer& other = buffers_[below(buffers_.size())];
      buffer.base = other.base;
      end = std::max(other.base + other.bytes(), other.base + 8);
    }
    buffer.raw = shape((end - buffer.base) / kTypeBytes[buffer.type]);
    return buffer;
  }

  Buffer reshaped(const Buffer& other) {
    Buffer buffer{other.base, other.type, other.raw, other.owner};
    if (one_in(3) && buffer.raw.size() < PTO_MAX_DIMS) {
      buffer.raw.insert(buffer.raw.begin() + below(buffer.raw.size() + 1), 1);
    } else {
      buffer.raw = shape(other.bytes() / kTypeBytes[other.type]);
    }
    return buffer;
  }

  View whole(const Buffer& buffer) {
    return {buffer.base, kTypeBytes[buffer.type], buffer.raw,
            std::vector<uint64_t>(buffer.raw.size(), 0), buffer.raw};
  }

  View part(const Buffer& buffer) {
    View view = whole(buffer);
    if (one_in(5)) return view;
    const bool is_tile = one_in(2);
    for (size_t dim = 0; dim < buffer.raw.size(); ++dim) {
      const uint64_t size = buffer.raw[dim];
      if (one_in(4)) continue;
      view.shapes[dim] = 1 + below(is_tile ? std::min<uint64_t>(size, 4) : size);
      view.offsets[dim] = below(size - view.shapes[dim] + 1);
      if (is_tile) view.offsets[dim] -= view.offsets[dim] % view.shapes[dim];
      if (one_in(50)) view.shapes[dim] = 0;
    }
    return view;
  }

  // Return the view as a tensor, whose dimensions may be permuted.
  pto_tensor_data tensor_of(const View& view, const Buffer& buffer) {
    pto_tensor_data data{};
    data.buffer = {buffer.base, buffer.bytes()};
    data.ndims = static_cast<uint32_t>(view.raw.size());
    data.dtype = kTypes[buffer.type];
    data.owner = buffer.owner;
    std::vector<uint8_t> order(view.raw.size());
    std::iota(order.begin(), order.end(), uint8_t{0});
    if (one_in(3)) std::shuffle(order.begin(), order.end(), random_);
    uint64_t stride = 1;
    for (size_t place = view.raw.size(); place-- > 0; stride *= view.raw[place]) {
      data.start_offset += view.offsets[place] * stride;
    }
    for (size_t dim = 0; dim < order.size(); ++dim) {
      data.order[dim] = order[dim];
      data.raw_shapes[dim] = view.raw[order[dim]];
      data.shapes[dim] = view.shapes[order[dim]];
      data.offsets[dim] = view.offsets[order[dim]];
    }
    return data;
  }

  void submit() {
    tensors_.clear();
    tensors_.resize(6);
    std::vector<Access> accesses;
    Submission submission(device_);
    const auto name = [&](uint32_t tag, const View& view, const Buffer& buffer) {
      pto_tensor_data& data = tensors_[accesses.size()];
      data = tensor_of(view, buffer);
      submission.tensor(tag, data);
      accesses.push_back({tag, view});
    };
    for (uint64_t count = below(5); count > 0; --count) {
      Buffer buffer = !heap_.empty() && one_in(3) ? heap_[below(heap_.size())]
                                                  : buffers_[below(buffers_.size())];
      if (one_in(4)) buffer = reshaped(buffer);
      const uint32_t tag = static_cast<uint32_t>(below(5));  // chosen before the view
      name(tag, part(buffer), buffer);
    }
    const bool allocates = one_in(4);
    Buffer made{0, static_cast<uint32_t>(below(4)), shape(32)};
    if (allocates) name(PTO_TAG_OUTPUT, whole(made), made);
    if (one_in(6)) submission.blocks(1 + static_cast<uint32_t>(below(3)));
    const int64_t task = submission.submit();
    CHECK(task >= 0);
    if (allocates) {
      made.base = tensors_[accesses.size() - 1].buffer.addr;
      made.owner = tensors_[accesses.size() - 1].owner;
      accesses.back().view = whole(made);
      heap_.push_back(made);
    }
    oracle_.submit(task, accesses);
    for (; !tasks_.empty() && one_in(6);) {
      const int64_t from = tasks_[below(tasks_.size())];
      CHECK_EQUAL(device_.api().add_edge(device_.runtime(), from, task), PTO_OK);
      oracle_.add_dep(from, task);
    }
    tasks_.push_back(task);
  }

  OneThread& device_;
  std::mt19937_64 random_;
  Oracle oracle_;
  uint64_t most_dims_ = 1;
  std::vector<Buffer> buffers_;
  std::vector<Buffer> heap_;    // heap buffers of the open scopes
  std::vector<size_t> scopes_;  // for each open scope: number of heap buffers when it began
  std::vector<pto_tensor_data> tensors_;
  std::vector<int64_t> tasks_;
};

std::string difference(const Edges& expected, const Edges& found) {
  std::string text;
  const auto list = [&](const char* what, const Edges& in, const Edges& not_in) {
    for (const auto& edge : in) {
      if (not_in.count(edge) != 0) continue;
      text += std::string(" ") + what + " " + std::to_string(edge.first >> 2) + " of ring " +
              std::to_string(edge.first & 3) + " > " + std::to_string(edge.second >> 2) +
              " of ring " + std::to_string(edge.second & 3);
    }
  };
  list("missing", expected, found);
  list("wrong", found, expected);
  return text;
}

void compare(uint32_t hazards) {
  OneThread device(1, {{"task_window", "1024"}, {"heap", "1048576"}, {"dep_pool", "16384"}});
  size_t edges = 0;
  for (uint64_t round = 0; round < programs_from_arguments; ++round) {
    const uint64_t seed = seed_from_arguments + round;
    RandomProgram program(device, seed, hazards == PTO_HAZARDS_FULL);
    CHECK_EQUAL(device.run([&] { program.submit_all(); }, hazards), PTO_OK);
    edges += program.expected().size();
    const std::string text = difference(program.expected(), device.edges());
    if (!text.empty()) check::fail(__FILE__, __LINE__, "seed " + std::to_string(seed) + text);
  }
  CHECK(edges > 40 * programs_from_arguments);
  std::printf("  %zu edges\n", edges);
}

// Invariant: The edges of a program depend only on its tags and regions, not on the sizes of rings.
TEST(raw_edges_are_the_oracles) {
  compare(PTO_HAZARDS_RAW);
}
TEST(full_edges_are_the_oracles) {
  compare(PTO_HAZARDS_FULL);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) programs_from_arguments = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) seed_from_arguments = std::strtoull(argv[3], nullptr, 10);
  const bool is_all = argc < 2 || std::string(argv[1]) == "all";
  return check::run_all(is_all ? 1 : 2, argv);
}
