// The cost of a submit for the calling thread while 8 or 16,384 regions of one buffer are alive.
//
// usage: submits LIBRARY SUBMITS. Drives the runtime's library alone, on one thread: kernels and
// cores cost nothing, and schedulers are stepped between measurements. Regions are visited in
// random order; each submit updates one. For each way to divide the buffer (1-D slices, 2-D tiles,
// strided boxes) it prints two lines: for regions whose tasks are all alive, and for regions of
// retired tasks. A line contains median and 99th percentile in nanoseconds with 8 regions, then
// with 16,384. The measurements alternate.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "pto/abi/dtype.h"
#include "pto/abi/runtime.h"

namespace {

using Entry = const pto_runtime_api* (*)(const char*);

constexpr uint64_t kManyRegions = 16384;
constexpr uint64_t kFewRegions = 8;
constexpr uint32_t kBatch = 16;  // number of submits between two readings of the clock
constexpr uint32_t kTurns = 3;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "submits: %s\n", what);
  std::exit(1);
}

// A platform whose cores finish each task at once.
class Platform {
 public:
  Platform() {
    topology_.blocks = PTO_MAX_BLOCKS;
    topology_.cores = PTO_MAX_CORES;
    topology_.schedulers = 1;
    topology_.thread_cores[0] = {{~uint64_t{0}, 0xFF}};
    for (uint32_t core = PTO_MAX_BLOCKS; core < PTO_MAX_CORES; ++core) {
      topology_.core_type[core] = PTO_CORE_AIV;
    }
    table_.abi_version = PTO_ABI_VERSION;
    table_.struct_size = sizeof table_;
    table_.self = this;
    table_.topology = &topology_;
    table_.reserve = [](void*, size_t bytes) -> void* {
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) return nullptr;
      madvise(memory, bytes, MADV_NOHUGEPAGE);
      return memory;
    };
    table_.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
    table_.free = [](void*, uint64_t) -> pto_status { return PTO_OK; };
    table_.dispatch = [](void* raw, uint32_t, const pto_dispatch* batch, uint32_t count) {
      pto_core_mask& done = static_cast<Platform*>(raw)->done_.done;
      for (uint32_t i = 0; i < count; ++i) {
        done.words[batch[i].core / 64] |= uint64_t{1} << batch[i].core % 64;
      }
    };
    table_.poll = [](void* raw, uint32_t, pto_poll_result* result) {
      *result = static_cast<Platform*>(raw)->done_;
      static_cast<Platform*>(raw)->done_ = {};
    };
    table_.wake = [](void*, uint32_t) {};
    table_.notify = [](void*, const uint32_t*) {};
    table_.now = [](void*) -> uint64_t { return 0; };
    table_.log = [](void*, int32_t, const char*) {};
  }

  const pto_platform* table() const { return &table_; }

 private:
  pto_topology topology_{};
  pto_platform table_{};
  pto_poll_result done_{};
};

pto_tensor_data whole(std::vector<uint64_t> raw) {
  pto_tensor_data tensor{};
  uint64_t bytes = 4;
  tensor.ndims = static_cast<uint32_t>(raw.size());
  tensor.dtype = PTO_DTYPE_FLOAT32;
  tensor.owner = -1;
  for (size_t dim = 0; dim < raw.size(); ++dim) {
    tensor.raw_shapes[dim] = raw[dim];
    tensor.order[dim] = static_cast<uint8_t>(dim);
    bytes *= raw[dim];
  }
  tensor.buffer = {uint64_t{1} << 40, bytes};
  return tensor;
}

// A way to divide 64 MiB into 16,384 regions of 1,024 elements. place() makes a tensor refer to one
// of them.
struct Cut {
  pto_tensor_data whole;
  std::vector<uint64_t> shape;
  void (*place)(pto_tensor_data& tensor, uint64_t region);
};

const Cut kCuts[] = {
    {whole({uint64_t{1} << 24}),
     {1024},
     [](pto_tensor_data& tensor, uint64_t region) {
       tensor.offsets[0] = tensor.start_offset = region * 1024;
     }},
    {whole({4096, 4096}),
     {32, 32},
     [](pto_tensor_data& tensor, uint64_t region) {
       tensor.offsets[0] = region / 128 * 32;
       tensor.offsets[1] = region % 128 * 32;
       tensor.start_offset = tensor.offsets[0] * 4096 + tensor.offsets[1];
     }},
    // Each region spans most of a plane of 512 rows, so the hulls of the 128 regions of a plane
    // overlap.
    {whole({128, 512, 256}),
     {1, 512, 2},
     [](pto_tensor_data& tensor, uint64_t region) {
       tensor.offsets[0] = region / 128;
       tensor.offsets[2] = region % 128 * 2;
       tensor.start_offset = tensor.offsets[0] * 512 * 256 + tensor.offsets[2];
     }},
};

class Measurement {
 public:
  Measurement(const pto_runtime_api& api, const Cut& cut, uint64_t regions, bool retired,
              uint32_t submits)
      : api_(api),
        retired_(retired),
        distance_(kManyRegions / regions),
        place_(cut.place),
        tensor_(cut.whole) {
    std::copy(cut.shape.begin(), cut.shape.end(), tensor_.shapes);
    std::mt19937 random(1);
    for (uint32_t i = 0; i < submits; ++i) {
      order_.push_back(static_cast<uint32_t>(random() % regions));
    }
    pto_error error{};
    require(api_.create(platform_.table(), nullptr, 0, &runtime_, &error) == PTO_OK, error.message);
  }
  ~Measurement() { api_.destroy(runtime_); }

  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  // One run: every region is written once, then the measured submits follow in the same scope.
  // Alternatively, the tasks that wrote the regions retire before the scope of the measured
  // submits.
  void take() {
    const pto_kernel_entry kernel = {0, -1, 1, "empty", nullptr};
    pto_call_config config{};
    pto_run run{};
    run.kernels = &kernel;
    run.num_kernels = 1;
    run.config = &config;
    require(api_.begin(runtime_, &run) == PTO_OK, "a run did not begin");
    api_.scope_begin(runtime_, nullptr, 0);
    for (uint64_t region = 0; region < kManyRegions / distance_; ++region) submit(region);
    if (retired_) {
      api_.scope_end(runtime_);
      while (api_.schedule_step(runtime_, 0) == PTO_STEP_PROGRESS) {
      }
      api_.scope_begin(runtime_, nullptr, 0);
    }
    measure();
    api_.scope_end(runtime_);
    api_.orchestration_done(runtime_, 0);
    while (api_.schedule_step(runtime_, 0) != PTO_STEP_DONE) {
      pto_error error{};
      require(api_.last_error(runtime_, &error) == PTO_OK, error.message);
    }
    api_.end(runtime_);
  }

  // The times of the measured submits, in nanoseconds.
  double percentile(double part) {
    std::sort(times_.begin(), times_.end());
    return times_[static_cast<size_t>(part * static_cast<double>(times_.size() - 1))];
  }

 private:
  void measure() {
    for (size_t done = 0; done + kBatch <= order_.size(); done += kBatch) {
      const auto start = std::chrono::steady_clock::now();
      for (size_t next = done; next < done + kBatch; ++next) submit(order_[next]);
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - start;
      times_.push_back(took.count() / kBatch);
    }
  }

  void submit(uint64_t region) {
    place_(tensor_, region * distance_);
    pto_param param{};
    param.tag = PTO_TAG_INOUT;
    param.value.tensor = &tensor_;
    pto_tensor_task task{};
    task.core_type = PTO_CORE_AIV;
    task.num_params = 1;
    task.params = &param;
    require(api_.submit_tensors(runtime_, &task) >= 0, "a submit was refused");
  }

  const pto_runtime_api& api_;
  const bool retired_;
  const uint64_t distance_;
  void (*place_)(pto_tensor_data& tensor, uint64_t region);
  pto_tensor_data tensor_;
  Platform platform_;
  void* runtime_ = nullptr;
  std::vector<uint32_t> order_;
  std::vector<double> times_;
};

void compare(const pto_runtime_api& api, const Cut& cut, bool retired, uint32_t submits) {
  Measurement few(api, cut, kFewRegions, retired, submits);
  Measurement many(api, cut, kManyRegions, retired, submits);
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    few.take();
    many.take();
  }
  std::printf("%.2f %.2f %.2f %.2f\n", few.percentile(0.5), few.percentile(0.99),
              many.percentile(0.5), many.percentile(0.99));
}

}  // namespace

int main(int argc, char** argv) {
  require(argc == 3, "usage: submits LIBRARY SUBMITS");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, "the library does not load");
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "pto_runtime_entry"));
  require(entry != nullptr, "the library exports no runtime");
  const pto_runtime_api* api = entry("tensormap_and_ringbuffer");
  require(api != nullptr, "the library has another runtime");
  const auto submits = static_cast<uint32_t>(std::max(std::atoi(argv[2]), int{kBatch}));
  for (const Cut& cut : kCuts) {
    compare(*api, cut, false, submits);
    compare(*api, cut, true, submits);
  }
  return 0;
}
