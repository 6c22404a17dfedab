// Unit tests of the parts of a device: options, shape, registers, libraries and the activity page.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "activity.hpp"
#include "check.hpp"
#include "cores.hpp"
#include "loader.hpp"
#include "options.hpp"

namespace {

using namespace pto::sim;

pto_status parse(const char* key, const char* value, Options& options, pto_error* error) {
  const pto_option option{key, value};
  return parse_options(&option, 1, options, error);
}

std::vector<char> read_file(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  CHECK(file != nullptr);
  std::vector<char> bytes(1 << 20);
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
  std::fclose(file);
  return bytes;
}

}  // namespace

TEST(valid_options_are_parsed) {
  Options options;
  CHECK_EQUAL(parse("mode", "deterministic", options, nullptr), PTO_OK);
  CHECK(options.mode == Mode::deterministic);
  CHECK_EQUAL(parse("seed", "18446744073709551615", options, nullptr), PTO_OK);
  CHECK_EQUAL(options.seed, UINT64_MAX);
  CHECK_EQUAL(parse("check", "1", options, nullptr), PTO_OK);
  CHECK(options.check);
  CHECK_EQUAL(parse("workers", "0", options, nullptr), PTO_OK);
  CHECK(options.workers >= 1);
}

TEST(invalid_options_are_refused) {
  const char* wrong[][2] = {{"mode", "fast"},     {"seed", "-1"},        {"seed", "7x"},
                            {"check", "maybe"},   {"memory_bytes", "0"}, {"workers", "63"},
                            {"blocks", "25"},     {"blocks", "0"},       {"timing", ""},
                            {"activity_fd", "x"}, {"colour", "red"}};
  for (const auto& [key, value] : wrong) {
    Options options;
    pto_error error{};
    CHECK_EQUAL(parse(key, value, options, &error), PTO_ERROR_USAGE);
    CHECK(std::strstr(error.message, key) != nullptr);
  }
}

TEST(each_cluster_belongs_to_one_scheduler) {
  for (uint32_t blocks = 1; blocks <= PTO_MAX_BLOCKS; ++blocks) {
    for (uint32_t schedulers = 1; schedulers <= PTO_MAX_AICPU_THREADS; ++schedulers) {
      const pto_topology topology = make_topology(blocks, schedulers);
      CHECK_EQUAL(topology.cores, 3 * blocks);
      for (uint32_t cluster = 0; cluster < blocks; ++cluster) {
        for (const uint32_t core : {cluster, blocks + 2 * cluster, blocks + 2 * cluster + 1}) {
          CHECK_EQUAL(topology.core_type[core], core < blocks ? PTO_CORE_AIC : PTO_CORE_AIV);
          for (uint32_t thread = 0; thread < schedulers; ++thread) {
            CHECK_EQUAL(contains(topology.thread_cores[thread], core),
                        cluster % schedulers == thread);
          }
        }
      }
    }
  }
}

TEST(threads_are_divided_into_schedulers_and_orchestrator) {
  pto_call_config config{};
  SimRunShape shape;
  for (int32_t threads = 1; threads <= 4; ++threads) {
    config.aicpu_thread_num = threads;
    CHECK_EQUAL(run_shape(&config, PTO_RUNTIME_HOST_ORCHESTRATION, 24, shape, nullptr), PTO_OK);
    CHECK_EQUAL(shape.topology.schedulers, static_cast<uint32_t>(threads));
    CHECK(!shape.shares_thread);
    CHECK_EQUAL(run_shape(&config, 0, 24, shape, nullptr), PTO_OK);
    CHECK_EQUAL(shape.topology.schedulers, static_cast<uint32_t>(threads == 1 ? 1 : threads - 1));
    CHECK_EQUAL(shape.shares_thread, threads == 1);
  }
}

TEST(registers_follow_the_protocol) {
  CHECK_EQUAL(next_sequence(0), 1u);
  CHECK_EQUAL(next_sequence(PTO_SEQUENCE_MAX - 1), PTO_SEQUENCE_MAX);
  CHECK_EQUAL(next_sequence(PTO_SEQUENCE_MAX), 1u);

  DeviceMemory memory(false);
  Tracer tracer;
  Dump dump(memory);
  Cores cores(memory, tracer, dump, 0, false, false);
  CHECK_EQUAL(cores.open(nullptr), PTO_OK);
  cores.reset(make_topology(24, 3));
  ActivityPage activity;
  CHECK_EQUAL(activity.open(-1, 0, 1, nullptr), PTO_OK);

  Kernel kernel;
  kernel.function = [](int64_t* args) {
    *reinterpret_cast<int64_t*>(args[0]) = args[1] + *reinterpret_cast<int64_t*>(args[2]);
  };
  int64_t result = 0;
  struct {
    pto_payload header;
    uint64_t args[3];
    int64_t tail;
  } payload{{reinterpret_cast<uint64_t>(&kernel), 9, 0, 4, 3, 1u << 2},
            {reinterpret_cast<uint64_t>(&result), 40, sizeof(pto_payload) + 24},
            2};
  for (int round = 0; round < 3; ++round) {
    result = 0;
    cores.dispatch({71, sizeof payload, 0, &payload.header}, 0);
    payload.args[1] = 0;  // must have no effect: the core has its own copy
    CHECK(!cores.finished(71));
    cores.acknowledge(71);
    CHECK(!cores.finished(71));
    cores.execute(71, activity.slot(0), 0);
    CHECK(cores.finished(71));
    CHECK(!cores.faulted(71));
    CHECK_EQUAL(result, 42);
    payload.args[1] = 40;
  }
  CHECK_EQUAL(cores.usage(71).tasks, 3u);
  CHECK_EQUAL(activity.slot(0).sequence, 6u);
  CHECK_EQUAL(activity.slot(0).task, 9u);
  CHECK_EQUAL(activity.slot(0).core, 71);
  CHECK_EQUAL(activity.slot(0).func_id, 4);
}

TEST(kernels_come_from_libraries_and_bytes) {
  Loader loader;
  pto_error error{};
  pto_kernel_source source{};
  source.func_id = 3;
  source.name = "twice";
  source.path = PTO_KERNEL_LIBRARY;
  uint64_t address = 0;
  CHECK_EQUAL(loader.load_kernel(source, &address, &error), PTO_OK);
  int64_t argument = 21;
  reinterpret_cast<Kernel*>(address)->function(&argument);
  CHECK_EQUAL(argument, 42);
  CHECK_EQUAL(loader.unload_kernel(address), PTO_OK);
  CHECK_EQUAL(loader.unload_kernel(address), PTO_ERROR_USAGE);

  const std::vector<char> bytes = read_file(PTO_KERNEL_LIBRARY);
  uint64_t uploaded[2] = {};
  for (uint64_t& each : uploaded) {
    CHECK_EQUAL(loader.upload_kernel(5, bytes.data(), bytes.size(), &each, &error), PTO_OK);
  }
  CHECK(uploaded[0] != uploaded[1]);
  reinterpret_cast<Kernel*>(uploaded[1])->function(&argument);
  CHECK_EQUAL(argument, 84);
  loader.end_run();
  CHECK_EQUAL(loader.unload_kernel(uploaded[0]), PTO_ERROR_USAGE);
}

TEST(a_load_error_names_kernel_and_symbol) {
  Loader loader;
  pto_error error{};
  pto_kernel_source source{};
  source.func_id = 3;
  source.name = "lost";
  uint64_t address = 0;
  CHECK_EQUAL(loader.load_kernel(source, &address, &error), PTO_ERROR_LOAD);
  source.path = "/nonexistent/libkernel.so";
  CHECK_EQUAL(loader.load_kernel(source, &address, &error), PTO_ERROR_LOAD);
  CHECK(std::strstr(error.message, "lost (func_id 3)") != nullptr);
  CHECK(std::strstr(error.message, "/nonexistent/libkernel.so") != nullptr);
  CHECK_EQUAL(error.func_id, 3);
  source.path = PTO_KERNEL_LIBRARY;
  source.symbol = "other_entry";
  CHECK_EQUAL(loader.load_kernel(source, &address, &error), PTO_ERROR_LOAD);
  CHECK(std::strstr(error.message, "other_entry") != nullptr);
  source.path = PTO_BROKEN_KERNEL_LIBRARY;
  source.func_id = -1;
  CHECK_EQUAL(loader.load_kernel(source, &address, &error), PTO_ERROR_LOAD);
  CHECK_EQUAL(std::string(error.message),
              std::string("cannot load kernel lost from ") + PTO_BROKEN_KERNEL_LIBRARY +
                  ": undefined symbol: _Z7nowherePl, which no library defines; define it in that "
                  "source, or make it inline in a header");
  CHECK_EQUAL(loader.upload_kernel(1, "rubbish", 7, &address, &error), PTO_ERROR_LOAD);
  CHECK(std::strstr(error.message, "/proc/") == nullptr);
  uint64_t library = 0;
  CHECK_EQUAL(loader.libraries().load("/nonexistent.so", &library, &error), PTO_ERROR_LOAD);
  CHECK_EQUAL(loader.libraries().load(PTO_KERNEL_LIBRARY, &library, &error), PTO_OK);
  void* symbol = nullptr;
  CHECK_EQUAL(loader.libraries().resolve(library, "kernel_entry", &symbol), PTO_OK);
  CHECK_EQUAL(loader.libraries().resolve(library, "nothing", &symbol), PTO_ERROR_LOAD);
  CHECK_EQUAL(loader.libraries().unload(library), PTO_OK);
  CHECK_EQUAL(loader.libraries().unload(library), PTO_ERROR_USAGE);
}

TEST(the_activity_page_is_shared_with_the_parent) {
  const int file = memfd_create("activity", 0);
  CHECK_EQUAL(ftruncate(file, sizeof(pto_activity_page)), 0);
  void* seen = mmap(nullptr, sizeof(pto_activity_page), PROT_READ, MAP_SHARED, file, 0);
  CHECK(seen != MAP_FAILED);
  ActivityPage activity;
  CHECK_EQUAL(activity.open(file, 7, 2, nullptr), PTO_OK);
  pto_payload payload{};
  payload.task = 11;
  note_kernel(activity.slot(1), payload, 5);
  const auto* page = static_cast<const pto_activity_page*>(seen);
  CHECK_EQUAL(page->magic, PTO_ACTIVITY_MAGIC);
  CHECK_EQUAL(page->device, 7);
  CHECK_EQUAL(page->slots, 2u);
  CHECK_EQUAL(page->slot[1].sequence, 1u);
  CHECK_EQUAL(page->slot[1].task, 11u);
  munmap(seen, sizeof(pto_activity_page));
  close(file);
  pto_error error{};
  ActivityPage none;
  CHECK_EQUAL(none.open(file, 0, 1, &error), PTO_ERROR_USAGE);
}

int main(int argc, char** argv) {
  return check::run(argc, argv);
}
