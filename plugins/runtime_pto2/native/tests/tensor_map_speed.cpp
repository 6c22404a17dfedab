// Measures the cost of a submit in the tensor map (look-up, insertion, retirement), with 8 and with
// 16,384 regions of one buffer, in random order.
//
// Prints one line for each way to divide the buffer, once with all tasks alive and once with most
// of them retired: shape; "live" or "retired"; median and p99 in nanoseconds for 8 and for 16,384
// regions; the two ratios. The measurements alternate, so that a drift of the machine affects both.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "tensor_map.hpp"

namespace {

using namespace pto::ring_buffer;

constexpr uint32_t kWindow = 65536;
constexpr uint32_t kOperations = 65536;  // operations in one measurement
constexpr uint32_t kBatch = 16;          // operations between two readings of the clock

pto_platform make_platform() {
  pto_platform platform{};
  platform.reserve = [](void*, size_t bytes) { return std::calloc(bytes, 1); };
  platform.release = [](void*, void* memory, size_t) { std::free(memory); };
  return platform;
}

pto_tensor_data whole(std::vector<uint64_t> raw) {
  pto_tensor_data tensor{};
  tensor.buffer.addr = uint64_t{1} << 40;
  tensor.ndims = static_cast<uint32_t>(raw.size());
  tensor.owner = kNoTask;
  for (size_t dim = 0; dim < raw.size(); ++dim) {
    tensor.raw_shapes[dim] = tensor.shapes[dim] = raw[dim];
    tensor.order[dim] = static_cast<uint8_t>(dim);
  }
  return tensor;
}

// A way to divide 64 MiB into 16,384 regions of 1,024 elements. place() makes a tensor refer to
// region `piece`.
struct Cut {
  const char* name;
  pto_tensor_data whole;
  std::vector<uint64_t> shape;
  void (*place)(pto_tensor_data& tensor, uint64_t piece);
};

const Cut kCuts[] = {
    {"slice",
     whole({uint64_t{1} << 24}),
     {1024},
     [](pto_tensor_data& tensor, uint64_t piece) {
       tensor.offsets[0] = tensor.start_offset = piece * 1024;
     }},
    {"tile",
     whole({4096, 4096}),
     {32, 32},
     [](pto_tensor_data& tensor, uint64_t piece) {
       tensor.offsets[0] = piece / 128 * 32;
       tensor.offsets[1] = piece % 128 * 32;
       tensor.start_offset = tensor.offsets[0] * 4096 + tensor.offsets[1];
     }},
    // The hull of each region covers most of a plane of 512 rows, so the hulls of 128 regions
    // overlap.
    {"box",
     whole({128, 512, 256}),
     {1, 512, 2},
     [](pto_tensor_data& tensor, uint64_t piece) {
       tensor.offsets[0] = piece / 128;
       tensor.offsets[2] = piece % 128 * 2;
       tensor.start_offset = tensor.offsets[0] * 512 * 256 + tensor.offsets[2];
     }},
};

class RingSubmitter {
 public:
  RingSubmitter()
      : platform_(make_platform()),
        memory_(&platform_),
        records_(kWindow),
        descriptors_(kWindow),
        payloads_(kWindow) {
    rings_.ring[0].window = kWindow;
    rings_.ring[0].records = records_.data();
    if (!map_.create(memory_, 65536)) std::abort();
    map_.begin(rings_, false);
  }
  ~RingSubmitter() { map_.destroy(); }

  // Submits one task that updates the tensor, after retiring old tasks so that at most `alive`
  // tasks are alive.
  void submit(const pto_tensor_data& tensor, int64_t alive) {
    retire_until(next_ - alive);
    const Access access = locate_access(tensor);
    map_.prepare(access);
    describe(tensor);
    map_.find_writers(access, [&](int64_t task, bool) { edges_ += static_cast<uint64_t>(task); });
    rings_.ring[0].record(next_).first_entry = 0;
    map_.insert_writer(access, TaskId{0, next_++}.value(), false);
  }

  void retire_until(int64_t watermark) {
    if (watermark < retired_ + 64) return;
    map_.saw(0, watermark);
    for (; retired_ < watermark; ++retired_) {
      map_.prepare_to_retire(rings_.ring[0].record(retired_ + 8));
      map_.retire(rings_.ring[0].record(retired_), CleanedBy::kBatch);
    }
  }

  uint64_t edges() const { return edges_; }

 private:
  // Writes the other data of a submit: 64 bytes of descriptor and a copy of the tensor.
  void describe(const pto_tensor_data& tensor) {
    const auto slot = static_cast<size_t>(next_ & (kWindow - 1));
    descriptors_[slot].id = TaskId{0, next_}.value();
    descriptors_[slot].edge_count = 1;
    payloads_[slot] = tensor;
  }

  pto_platform platform_;
  pto::engine::Memory memory_;
  std::vector<RingTask> records_;
  std::vector<TaskDescriptor> descriptors_;
  std::vector<pto_tensor_data> payloads_;
  Rings rings_;
  TensorMap map_;
  int64_t next_ = 0;
  int64_t retired_ = 0;
  uint64_t edges_ = 0;
};

class Measurement {
 public:
  Measurement(const Cut& cut, uint64_t pieces, int64_t alive)
      : alive_(alive), tensor_(cut.whole), place_(cut.place) {
    std::copy(cut.shape.begin(), cut.shape.end(), tensor_.shapes);
    std::mt19937 random(1);
    const uint64_t distance = 16384 / pieces;
    for (uint32_t& piece : order_) piece = static_cast<uint32_t>(random() % pieces * distance);
    for (uint64_t piece = 0; piece < pieces; ++piece) submit(piece * distance);
  }

  // Measures the nanoseconds for an operation, one value for each batch of operations.
  void take() {
    for (uint32_t done = 0; done < kOperations; done += kBatch) {
      const auto start = std::chrono::steady_clock::now();
      for (uint32_t next = done; next < done + kBatch; ++next) submit(order_[next]);
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - start;
      times_.push_back(took.count() / kBatch);
    }
  }

  double percentile(double part) {
    std::sort(times_.begin(), times_.end());
    return times_[static_cast<size_t>(part * static_cast<double>(times_.size() - 1))];
  }

 private:
  void submit(uint64_t piece) {
    place_(tensor_, piece);
    submitter_->submit(tensor_, alive_);
  }

  std::unique_ptr<RingSubmitter> submitter_ = std::make_unique<RingSubmitter>();
  int64_t alive_;
  pto_tensor_data tensor_;
  void (*place_)(pto_tensor_data& tensor, uint64_t piece);
  uint32_t order_[kOperations];
  std::vector<double> times_;
};

void compare(const Cut& cut, int64_t alive, const char* liveness) {
  auto few = std::make_unique<Measurement>(cut, 8, alive);
  auto many = std::make_unique<Measurement>(cut, 16384, alive);
  for (int repeat = 0; repeat < 10; ++repeat) {
    few->take();
    many->take();
  }
  const double few_median = few->percentile(0.5), few_p99 = few->percentile(0.99);
  const double many_median = many->percentile(0.5), many_p99 = many->percentile(0.99);
  std::printf("%s %s %.1f %.1f %.1f %.1f %.2f %.2f\n", cut.name, liveness, few_median, few_p99,
              many_median, many_p99, many_median / few_median, many_p99 / few_p99);
}

}  // namespace

int main() {
  std::printf("shape liveness 8_median 8_p99 16384_median 16384_p99 median_ratio p99_ratio\n");
  for (const Cut& cut : kCuts) {
    compare(cut, 60000, "live");
    compare(cut, 1024, "retired");
  }
  return 0;
}
