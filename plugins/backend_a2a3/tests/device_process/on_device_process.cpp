// The device library on the device process: three variants, faults, and the memory of the device.
// Arguments: the build folders of runtime_hbg and runtime_pto2, and optionally the name of a test.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "check.hpp"
#include "device_process/host_graph.hpp"
#include "device_process/session.hpp"

namespace {

constexpr uint64_t kCount = 64;
std::string hbg, pto2;

std::string kernel(const std::string& name) {
  return std::string(PTO_KERNELS) + "/kernel_" + name + ".so";
}

SessionSettings with_blocks(uint32_t blocks, uint32_t seed) {
  SessionSettings settings;
  settings.blocks = blocks;
  settings.silicon = {"blocks=" + std::to_string(blocks), "seed=" + std::to_string(seed)};
  return settings;
}

// Two arrays of floats in device memory: 0, 1, 2, ... and -1.
struct Arrays {
  Silicon& silicon;
  uint64_t in, out;

  explicit Arrays(Session& session) : silicon(session.silicon()) {
    std::vector<float> values;
    for (uint64_t i = 0; i < kCount; ++i) values.push_back(static_cast<float>(i));
    in = silicon.allocate(kCount * sizeof(float));
    silicon.copy_in(in, values.data(), kCount * sizeof(float));
    values.assign(kCount, -1);
    out = silicon.allocate(kCount * sizeof(float));
    silicon.copy_in(out, values.data(), kCount * sizeof(float));
  }
  template <class Expected>
  void check_result(Expected expected) const {
    float values[kCount];
    silicon.copy_out(values, out, sizeof values);
    for (uint64_t i = 0; i < kCount; ++i) CHECK_EQUAL(values[i], expected(static_cast<float>(i)));
  }
};

float product(float x) {
  return (x + 1) * (x + 2);
}

// A session with aicpu_build_graph and its two kernels.
struct BuildGraph : Session {
  explicit BuildGraph(const SessionSettings& settings = with_blocks(1, 1)) : Session(settings) {
    CHECK_EQUAL(attach(hbg + "/native/libpto_aicpu_build_graph.so", "aicpu_build_graph"), PTO_OK);
    add_kernel(0, PTO_CORE_AIV, kernel("add"));
    add_kernel(1, PTO_CORE_AIC, kernel("multiply"));
  }
  uint64_t orchestration(const std::string& entry) {
    return load(PTO_A2A3_ORCHESTRATION, hbg + "/native/tests/aicpu_build_graph_" + entry + ".so");
  }
};

// A session with tensormap_and_ringbuffer and its three kernels.
struct RingBuffer : Session {
  explicit RingBuffer(const SessionSettings& settings = with_blocks(1, 1),
                      const Options& options = {{"heap", "1048576"}})
      : Session(settings) {
    open(options);
  }
  RingBuffer(Session& sibling, const SessionSettings& settings) : Session(sibling, settings) {
    open({{"heap", "1048576"}});
  }
  void open(const Options& options) {
    const std::string library = pto2 + "/native/libpto_tensormap_and_ringbuffer.so";
    if (attach(library, "tensormap_and_ringbuffer", options) != PTO_OK) {
      check::fail(__FILE__, __LINE__, status.error.message);
    }
    add_kernel(0, PTO_CORE_AIV, kernel("add_tensors"));
    add_kernel(1, PTO_CORE_AIC, kernel("multiply_tensors"));
    add_kernel(2, PTO_CORE_AIV, kernel("add_block"));
  }
  uint64_t orchestration(const std::string& entry) {
    return load(PTO_A2A3_ORCHESTRATION,
                pto2 + "/native/tests/tensormap_and_ringbuffer_" + entry + ".so");
  }
};

void expect_ok(Session& session, pto_status status) {
  if (status != PTO_OK) check::fail(__FILE__, __LINE__, session.status.error.message);
}

void run_diamond(BuildGraph& session) {
  const Arrays arrays(session);
  const uint64_t library = session.orchestration("diamond");
  expect_ok(session, session.run(library, {arrays.in, arrays.out, kCount * sizeof(float)}));
  arrays.check_result(product);
  CHECK_EQUAL(session.status.report.tasks, uint64_t{3});
  CHECK_EQUAL(session.unload(library), PTO_OK);
}

TEST(a_host_that_dereferences_a_device_address_crashes) {
  Session session;
  const uint64_t address = session.silicon().allocate(64);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*reinterpret_cast<volatile char*>(address));
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST(answers_name_the_process_and_its_machine) {
  Session session;
  const silicon_info info = session.silicon().query();
  CHECK_EQUAL(info.pid, static_cast<uint32_t>(session.silicon().pid()));
  CHECK_EQUAL(session.status.process, info.pid);
  CHECK_EQUAL(session.status.machine, info.machine);
  CHECK(info.pid != static_cast<uint32_t>(getpid()));
  CHECK_EQUAL(__builtin_popcount(info.cluster_mask), 20);
}

TEST(aicpu_build_graph_runs) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    BuildGraph session(with_blocks(2, seed));
    for (int round = 0; round < 3; ++round) run_diamond(session);
  }
}

TEST(every_number_of_aicpu_threads_works) {
  BuildGraph session;
  for (int32_t threads = 1; threads <= PTO_MAX_AICPU_THREADS; ++threads) {
    session.config.aicpu_thread_num = threads;
    run_diamond(session);
  }
}

TEST(threads_on_one_processor_still_fill_the_roles) {
  SessionSettings settings = with_blocks(1, 5);
  settings.silicon.push_back("duplicates=1");
  BuildGraph session(settings);
  session.config.aicpu_thread_num = 4;
  for (int round = 0; round < 5; ++round) run_diamond(session);
  session.aicpu_threads = 4;
  for (int round = 0; round < 5; ++round) run_diamond(session);
}

// Starts a task with function 7.
void start_7(BuildGraph& session, const Arrays& arrays) {
  const uint64_t library = session.load(PTO_A2A3_ORCHESTRATION, kernel("graph_of_7"));
  session.start(library, {arrays.in, arrays.out, 256});
}

void start_diamond(BuildGraph& session, const Arrays& arrays) {
  session.start(session.orchestration("diamond"), {arrays.in, arrays.out, 256});
}

TEST(a_run_that_is_refused_leaves_the_device_usable) {
  BuildGraph session;
  const Arrays arrays(session);
  session.aicpu_threads = 2;
  start_diamond(session, arrays);
  CHECK_EQUAL(session.finish(), PTO_ERROR_USAGE);
  CHECK_CONTAINS(session.status.error.message, "aicpu_thread_num is 3, but the device has 2");
  session.config.aicpu_thread_num = 9;
  start_diamond(session, arrays);
  CHECK_EQUAL(session.finish(), PTO_ERROR_USAGE);
  CHECK_CONTAINS(session.status.error.message, "aicpu_thread_num is 9");
  session.config.aicpu_thread_num = 2;
  run_diamond(session);
}

TEST(a_run_that_does_not_begin_lets_the_cores_leave) {
  BuildGraph session;
  session.add_kernel_at(0, PTO_CORE_AIV, 4096);  // function 0 is taken
  const Arrays arrays(session);
  for (int round = 0; round < 2; ++round) {
    start_diamond(session, arrays);
    CHECK_EQUAL(session.finish(), PTO_ERROR_USAGE);
  }
}

TEST(aicpu_threads_that_do_not_start_are_counted) {
  SessionSettings settings = with_blocks(1, 1);
  settings.gate_timeout_ms = 1000;
  settings.silicon.push_back("dead_threads=4");
  BuildGraph session(settings);
  const Arrays arrays(session);
  start_diamond(session, arrays);
  CHECK_EQUAL(session.finish_without_end(), PTO_ERROR_LOST);
  CHECK_CONTAINS(session.status.error.message, "needs 3 AICPU threads, but 2 of 6 have started");
}

TEST(a_core_that_never_answers_is_named) {
  SessionSettings settings = with_blocks(2, 3);
  settings.gate_timeout_ms = 1000;
  settings.silicon.push_back("dead_core=5");  // AIV 0 of block 1
  BuildGraph session(settings);
  const Arrays arrays(session);
  start_diamond(session, arrays);
  CHECK_EQUAL(session.finish(), PTO_ERROR_LOST);
  CHECK_EQUAL(session.status.error.core, 4);
  CHECK_CONTAINS(session.status.error.message, "core 4 of 6 has not reported within 1000 ms");
}

// The registers of the cores do not lie in the order of the logical cores.
TEST(wrong_register_pages_are_noticed) {
  SessionSettings settings = with_blocks(1, 2);
  settings.gate_timeout_ms = 1000;
  settings.uses_registers = false;
  BuildGraph session(settings);
  const Arrays arrays(session);
  start_diamond(session, arrays);
  CHECK_EQUAL(session.finish(), PTO_ERROR_LOST);
  CHECK_CONTAINS(session.status.error.message, "core 0 of 3");
}

TEST(tensormap_and_ringbuffer_runs) {
  RingBuffer session(with_blocks(2, 7), {{"heap", "1048576"}, {"task_window", "128"}});
  const struct {
    const char* entry;
    float (*expected)(float);
  } cases[] = {{"diamond", product},
               {"diamond_of_views", product},
               {"long_chain", [](float x) { return x + 1000; }},
               {"clustered", [](float x) { return x + 1 + 2; }}};
  for (const int32_t threads : {3, 1}) {
    session.config.aicpu_thread_num = threads;
    for (const auto& [entry, expected] : cases) {
      const Arrays arrays(session);
      const uint64_t library = session.orchestration(entry);
      expect_ok(session, session.run(library, {arrays.in, arrays.out, kCount}));
      arrays.check_result(expected);
      CHECK_EQUAL(session.unload(library), PTO_OK);
    }
  }
}

// A session with host_build_graph, whose graphs come from an instance on the host.
struct HostBuildGraph : Session {
  explicit HostBuildGraph(const SessionSettings& settings = with_blocks(1, 1)) : Session(settings) {
    CHECK_EQUAL(attach(library, "host_build_graph"), PTO_OK);
    add_kernel(0, PTO_CORE_AIV, kernel("add"));
    add_kernel(1, PTO_CORE_AIC, kernel("multiply"));
  }
  const std::string library = hbg + "/native/libpto_host_build_graph.so";
};

void run_host_diamond(HostBuildGraph& session, HostGraph& host) {
  std::vector<float> in, out(kCount, -1);
  for (uint64_t i = 0; i < kCount; ++i) in.push_back(static_cast<float>(i));
  const std::vector<uint64_t> args{reinterpret_cast<uint64_t>(in.data()),
                                   reinterpret_cast<uint64_t>(out.data()), kCount * sizeof(float)};
  session.start(host.build(hbg + "/native/tests/host_build_graph_diamond.so", args), args);
  expect_ok(session, session.finish());
  host.finish();
  for (uint64_t i = 0; i < kCount; ++i) CHECK_EQUAL(out[i], product(in[i]));
  CHECK_EQUAL(session.status.report.tasks, uint64_t{3});
  CHECK_EQUAL(session.status.report.build_ns, uint64_t{0});
}

TEST(host_build_graph_runs) {
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    HostBuildGraph session(with_blocks(2, seed));
    HostGraph host(session, session.library);
    for (int32_t threads = 1; threads <= PTO_MAX_AICPU_THREADS; ++threads) {
      session.config.aicpu_thread_num = threads;
      run_host_diamond(session, host);
    }
  }
}

TEST(bytes_that_are_no_graph_are_refused) {
  HostBuildGraph session;
  session.start(std::vector<char>(64, 'x'), {});
  CHECK_EQUAL(session.finish(), PTO_ERROR_USAGE);
  CHECK_CONTAINS(session.status.error.message, "graph");
  session.start(0, {});
  CHECK_EQUAL(session.finish(), PTO_ERROR_UNSUPPORTED);
  HostGraph host(session, session.library);
  run_host_diamond(session, host);
}

TEST(a_variant_that_builds_on_the_device_takes_no_graph) {
  BuildGraph session;
  session.start(std::vector<char>(64, 'x'), {});
  CHECK_EQUAL(session.finish(), PTO_ERROR_UNSUPPORTED);
  run_diamond(session);
}

TEST(two_devices_run_two_variants_in_one_process) {
  BuildGraph first;
  SessionSettings settings = with_blocks(1, 1);
  settings.device_id = 1;
  RingBuffer second(first, settings);
  CHECK_EQUAL(first.status.process, second.status.process);
  const uint64_t library = second.orchestration("diamond");
  for (int round = 0; round < 3; ++round) {
    run_diamond(first);
    const Arrays arrays(second);
    expect_ok(second, second.run(library, {arrays.in, arrays.out, kCount}));
    arrays.check_result(product);
  }
}

// A kernel as on the chip: linked code without a file around it, executed where it was copied to.
TEST(raw_code_runs_in_device_memory) {
  BuildGraph session;
  uint64_t bytes = 0;
  session.add_kernel_at(7, PTO_CORE_AIV,
                        session.silicon().upload_file(
                            kernel("raw").replace(kernel("raw").size() - 3, 3, ".text"), bytes));
  CHECK(bytes > 0 && bytes < 4096);
  const Arrays arrays(session);
  start_7(session, arrays);
  expect_ok(session, session.finish());
  arrays.check_result([](float x) { return x + 1; });
}

TEST(all_cores_of_the_chip_take_part) {
  RingBuffer session(with_blocks(24, 3));
  const Arrays arrays(session);
  session.config.aicpu_thread_num = 4;
  expect_ok(session, session.run(session.orchestration("blocks"), {arrays.in, arrays.out, kCount}));
  arrays.check_result([](float x) { return x + 2; });
  CHECK_EQUAL(session.status.report.blocks, 24u);
}

TEST(a_deadlock_is_proven_and_the_next_run_works) {
  BuildGraph session;
  const Arrays arrays(session);
  const pto_status status =
      session.run(session.orchestration("forgets_to_publish"), {arrays.in, arrays.out, 256});
  CHECK_EQUAL(status, PTO_ERROR_UNPUBLISHED);
  CHECK_CONTAINS(session.status.error.message, "publish");
  run_diamond(session);
}

TEST(a_full_ring_is_proven_and_its_size_planned) {
  RingBuffer session(with_blocks(1, 1), {{"heap", "1024"}});
  const Arrays arrays(session);
  const uint64_t library = session.orchestration("diamond");
  CHECK_EQUAL(session.run(library, {arrays.in, arrays.out, kCount}), PTO_ERROR_DEADLOCK);
  const pto_error& error = session.status.error;
  CHECK_EQUAL(error.other_task, int64_t{PTO_RESOURCE_HEAP_RING});
  CHECK_EQUAL(error.limit, uint64_t{1024});
  CHECK_EQUAL(error.value, uint64_t{2048});
  CHECK_CONTAINS(std::string(error.file), "tensor_calls.cpp");
  const Arrays fresh(session);
  CHECK_EQUAL(session.run(library, {fresh.in, fresh.out, kCount}), PTO_ERROR_DEADLOCK);
}

TEST(without_planning_the_deadlock_is_proven_too) {
  SessionSettings settings = with_blocks(1, 1);
  settings.flags = 0;
  RingBuffer session(settings, {{"heap", "1024"}});
  const Arrays arrays(session);
  const uint64_t library = session.orchestration("diamond");
  CHECK_EQUAL(session.run(library, {arrays.in, arrays.out, kCount}), PTO_ERROR_DEADLOCK);
  CHECK_EQUAL(session.status.error.limit, uint64_t{1024});
  CHECK_CONTAINS(std::string(session.status.error.file), "tensor_calls.cpp");
}

TEST(a_kernel_without_code_is_a_fault) {
  BuildGraph session;
  session.add_kernel_at(7, PTO_CORE_AIV, 8);
  const Arrays arrays(session);
  start_7(session, arrays);
  CHECK_EQUAL(session.finish(), PTO_ERROR_KERNEL);
  CHECK_CONTAINS(session.status.error.message, "0x8");
  CHECK_EQUAL(session.status.error.func_id, 7);
  run_diamond(session);
}

// The only task on a core has function 7, and the host can read it whatever has happened.
Session::InFlight check_7_in_flight(const Session& session) {
  const std::vector<Session::InFlight> all = session.in_flight();
  CHECK_EQUAL(all.size(), size_t{1});
  CHECK_EQUAL(all[0].func_id, 7);
  CHECK_EQUAL(all[0].task, uint64_t{0});
  return all[0];
}

TEST(a_kernel_that_crashes_is_named) {
  BuildGraph session;
  session.add_kernel(7, PTO_CORE_AIV, kernel("crash"));
  const Arrays arrays(session);
  start_7(session, arrays);
  CHECK_EQUAL(session.finish(), PTO_ERROR_LOST);
  CHECK_EQUAL(session.aicore_end.kind, uint32_t{SILICON_CRASHED});
  CHECK_EQUAL(session.aicore_end.signal, uint32_t{SIGSEGV});
  CHECK_EQUAL(session.aicore_end.place, uint32_t{SILICON_ON_AIV});
  const int exit = session.silicon().wait_for_exit();
  CHECK(WIFSIGNALED(exit) || WEXITSTATUS(exit) != 0);
  CHECK_EQUAL(check_7_in_flight(session).physical, session.aicore_end.physical);
}

TEST(an_orchestration_that_crashes_is_a_crash_of_the_aicpu) {
  BuildGraph session;
  session.start(session.load(PTO_A2A3_ORCHESTRATION, kernel("crashing_graph")), {});
  CHECK_EQUAL(session.finish(), PTO_ERROR_LOST);
  CHECK_EQUAL(session.aicpu_end.kind, uint32_t{SILICON_CRASHED});
  CHECK_EQUAL(session.aicpu_end.signal, uint32_t{SIGSEGV});
  CHECK_EQUAL(session.aicpu_end.place, uint32_t{SILICON_ON_AICPU});
  CHECK_EQUAL(session.progress().phase, uint32_t{PTO_A2A3_RUNNING});
  CHECK(session.in_flight().empty());
}

TEST(a_killed_device_process_loses_the_run_and_a_new_one_works) {
  {
    BuildGraph session;
    session.add_kernel(7, PTO_CORE_AIV, kernel("hang"));
    const Arrays arrays(session);
    start_7(session, arrays);
    while (session.in_flight().empty()) CHECK(!session.has_ended());
    session.silicon().kill();
    CHECK_EQUAL(session.finish(), PTO_ERROR_LOST);
    CHECK_EQUAL(session.aicpu_end.kind, 0u);
    const int exit = session.silicon().wait_for_exit();
    CHECK(WIFSIGNALED(exit) && WTERMSIG(exit) == SIGKILL);
    check_7_in_flight(session);
  }
  BuildGraph fresh;
  run_diamond(fresh);
}

TEST(a_run_is_aborted_and_explained_while_a_kernel_hangs) {
  BuildGraph session;
  session.add_kernel(7, PTO_CORE_AIV, kernel("hang"));
  const Arrays arrays(session);
  start_7(session, arrays);
  while (session.in_flight().empty()) CHECK(!session.has_ended());
  CHECK_CONTAINS(session.explain(), "task");
  pto_error cause{};
  cause.status = PTO_ERROR_TIMEOUT;
  std::strcpy(cause.message, "the case took too long");
  const uint64_t heartbeat = session.progress().heartbeat;
  session.abort(cause, false);
  while (session.progress().heartbeat < heartbeat + 5) CHECK(!session.has_ended());
  session.abort(cause, true);
  CHECK_EQUAL(session.finish(), PTO_ERROR_LOST);
  CHECK_CONTAINS(session.status.error.message, "core ");
  CHECK_CONTAINS(session.status.error.message, "still runs kernel 7");
}

TEST(a_run_that_is_aborted_between_kernels_leaves_the_device_usable) {
  RingBuffer session;
  const Arrays arrays(session);
  pto_error cause{};
  cause.status = PTO_ERROR_TIMEOUT;
  std::strcpy(cause.message, "the case took too long");
  session.start(session.orchestration("long_chain"), {arrays.in, arrays.out, kCount});
  session.abort(cause, false);
  const pto_status status = session.finish();
  CHECK(status == PTO_ERROR_TIMEOUT || status == PTO_OK);  // it may have ended before
  const Arrays fresh(session);
  expect_ok(session, session.run(session.orchestration("diamond"), {fresh.in, fresh.out, kCount}));
  fresh.check_result(product);
}

TEST(too_little_memory_names_the_ring) {
  RingBuffer session(with_blocks(1, 1), {{"heap", "1073741824"}});
  const Arrays arrays(session);
  const pto_status status =
      session.run(session.orchestration("diamond"), {arrays.in, arrays.out, kCount});
  CHECK_EQUAL(status, PTO_ERROR_MEMORY);
  CHECK_CONTAINS(session.status.error.message, "heap");
  CHECK_CONTAINS(session.status.error.message, "has 268434432 bytes of memory for runs");
}

TEST(messages_reach_the_log) {
  RingBuffer session;
  const Arrays arrays(session);
  expect_ok(session, session.run(session.orchestration("logs"), {arrays.in, arrays.out, kCount}));
  CHECK_CONTAINS(session.log(), "some information");
  CHECK_CONTAINS(session.log(), "a line at every level");
}

TEST(a_broken_library_is_refused_with_the_reason) {
  Session session;
  CHECK_EQUAL(session.load_bytes(session.silicon().allocate(4096), 4096), PTO_ERROR_LOAD);
  CHECK_CONTAINS(session.status.error.message, "4096 bytes: ");
  CHECK_CONTAINS(session.status.error.message, "invalid ELF header");
  CHECK_EQUAL(session.unload(42), PTO_ERROR_USAGE);
  CHECK_CONTAINS(session.status.error.message, "0x2a");
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc >= 3);
  hbg = argv[1];
  pto2 = argv[2];
  return check::run_all(argc - 2, argv + 2);
}
