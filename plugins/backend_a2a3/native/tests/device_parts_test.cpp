// Parts of the device library by themselves: the memory pool, the choice of AICPU threads, the log,
// the texts of kernels, the cores of a run, and its dump.
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "check.hpp"
#include "device/cores.hpp"
#include "device/dump.hpp"
#include "device/gate.hpp"
#include "device/log.hpp"
#include "device/pool.hpp"
#include "device/texts.hpp"
#include "pto/engine/dumped_call.hpp"

namespace {

struct alignas(4096) Page {
  uint32_t words[1024];
};

// The registers of the chip. The core of each page answers at once, unless it is silent.
struct Chip {
  Page pages[PTO_A2A3_PHYSICAL_CORES] = {};
  std::set<uint32_t> silent;     // physical cores
  std::set<uint32_t> no_leaver;  // these do not answer PTO_SEQUENCE_EXIT

  uint32_t& at(uint32_t physical, uint32_t offset) { return pages[physical].words[offset / 4]; }
  void answer(uint64_t address) {
    const uint64_t offset = address - reinterpret_cast<uint64_t>(pages);
    const auto physical = static_cast<uint32_t>(offset / sizeof(Page));
    if (offset % sizeof(Page) != PTO_A2A3_DATA_MAIN_BASE || silent.count(physical) != 0) return;
    const uint32_t doorbell = at(physical, PTO_A2A3_DATA_MAIN_BASE);
    if (doorbell == PTO_SEQUENCE_EXIT && no_leaver.count(physical) != 0) return;
    at(physical, PTO_A2A3_COND) = doorbell | PTO_COND_FINISHED;
  }
};
Chip* chip = nullptr;

}  // namespace

// There is no device process: threads wait by giving way.
extern "C" {
void silicon_changed(uint64_t address) {
  if (chip != nullptr && address != 0) chip->answer(address);
}
uint32_t silicon_changes() {
  return 0;
}
void silicon_rest(uint32_t) {
  std::this_thread::yield();
}
}

namespace {

using pto::a2a3::Gate;
using pto::a2a3::Owner;
using pto::a2a3::Pool;

constexpr uint64_t kBase = 0x7e9000000040;  // a multiple of 64, not of 1024

TEST(blocks_are_aligned_although_the_pool_is_not) {
  Pool pool;
  pool.open(kBase, 10 * 1024);
  CHECK_EQUAL(pool.bytes(), uint64_t{9 * 1024});
  std::set<uint64_t> addresses;
  for (const uint64_t bytes : {0, 1, 1024, 1025}) {
    uint64_t address = 0;
    CHECK_EQUAL(pool.allocate(bytes, Owner::run, &address), PTO_OK);
    CHECK_EQUAL(address % 1024, uint64_t{0});
    CHECK(address >= kBase && address + bytes <= kBase + 10 * 1024);
    CHECK(addresses.insert(address).second);
  }
  CHECK_EQUAL(pool.used(), uint64_t{5 * 1024});
}

TEST(a_full_pool_says_so_and_gaps_are_used_again) {
  Pool pool;
  pool.open(kBase, 9 * 1024 + 960);
  uint64_t blocks[9], more = 0;
  for (uint64_t& block : blocks) CHECK_EQUAL(pool.allocate(1000, Owner::run, &block), PTO_OK);
  CHECK_EQUAL(pool.allocate(1, Owner::run, &more), PTO_ERROR_MEMORY);
  CHECK_EQUAL(pool.allocate(~uint64_t{0}, Owner::run, &more), PTO_ERROR_MEMORY);
  CHECK_EQUAL(pool.free(blocks[3]), PTO_OK);
  CHECK_EQUAL(pool.free(blocks[3]), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(pool.free(blocks[4] + 1), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(pool.free(blocks[4]), PTO_OK);
  CHECK_EQUAL(pool.allocate(3000, Owner::run, &more), PTO_ERROR_MEMORY);
  CHECK_EQUAL(pool.allocate(2000, Owner::run, &more), PTO_OK);
  CHECK_EQUAL(more, blocks[3]);
  CHECK_EQUAL(pool.peak(), uint64_t{9 * 1024});
}

TEST(the_end_of_a_run_frees_the_blocks_of_runs_only) {
  Pool pool;
  pool.open(kBase, 100 * 1024);
  uint64_t ring = 0, block = 0;
  CHECK_EQUAL(pool.allocate(1024, Owner::variant, &ring), PTO_OK);
  for (int i = 0; i < 20; ++i) CHECK_EQUAL(pool.allocate(1024, Owner::run, &block), PTO_OK);
  pool.free_all(Owner::run);
  CHECK_EQUAL(pool.used(), uint64_t{1024});
  CHECK_EQUAL(pool.free(ring), PTO_OK);
}

TEST(random_blocks_never_overlap) {
  Pool pool;
  pool.open(kBase, uint64_t{1} << 20);
  std::minstd_rand random(1);
  std::map<uint64_t, uint64_t> live;
  for (int i = 0; i < 5000; ++i) {
    uint64_t address = 0;
    const uint64_t bytes = random() % 20000;
    if (random() % 2 == 0 && pool.allocate(bytes, Owner::run, &address) == PTO_OK) {
      const auto next = live.lower_bound(address);
      CHECK(next == live.end() || address + bytes <= next->first);
      CHECK(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= address);
      live[address] = bytes;
    } else if (!live.empty()) {
      const auto chosen = std::next(live.begin(), static_cast<long>(random() % live.size()));
      CHECK_EQUAL(pool.free(chosen->first), PTO_OK);
      live.erase(chosen);
    }
  }
}

// The roles of one launch by thread; each thread reports the given processor.
struct Launch {
  std::vector<int32_t> roles;
  uint32_t leaders = 0;
  uint32_t reported = 0;
};

Launch launch(Gate& gate, uint64_t sequence, const std::vector<int32_t>& processors,
              uint32_t launched, uint32_t needed, uint64_t timeout_ns) {
  const uint16_t preferred[] = {2, 3, 4, 5, 6, 7};
  Launch result;
  result.roles.assign(processors.size(), Gate::kNoRole);
  std::atomic<uint32_t> leaders{0}, reported{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < processors.size(); ++i) {
    threads.emplace_back([&, i] {
      if (gate.enter(sequence)) {
        ++leaders;
        gate.open(sequence);
        const uint32_t number = gate.report(processors[i]);
        reported = gate.decide(sequence, needed, launched, preferred, 6, 0, timeout_ns);
        result.roles[i] = gate.wait_for_role(sequence, number);
      } else if (gate.wait_until_open(sequence)) {
        result.roles[i] = gate.wait_for_role(sequence, gate.report(processors[i]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  result.leaders = leaders;
  result.reported = reported;
  return result;
}

// Every role from 0 to needed - 1 belongs to one thread.
void check_roles(const Launch& outcome, uint32_t needed) {
  CHECK_EQUAL(outcome.leaders, 1u);
  std::set<int32_t> given;
  for (const int32_t role : outcome.roles) {
    if (role != Gate::kNoRole) CHECK(given.insert(role).second);
  }
  CHECK_EQUAL(given.size(), size_t{needed});
  CHECK_EQUAL(*given.rbegin(), static_cast<int32_t>(needed) - 1);
}

constexpr uint64_t kSecond = 1'000'000'000;

TEST(threads_on_preferred_processors_get_the_roles) {
  Gate gate;
  for (uint64_t sequence = 1; sequence <= 50; ++sequence) {
    const Launch outcome = launch(gate, sequence, {7, 9, 2, 9, 3, 9}, 6, 3, 10 * kSecond);
    check_roles(outcome, 3);
    CHECK(outcome.roles[0] != Gate::kNoRole && outcome.roles[2] == 0 && outcome.roles[4] == 1);
  }
}

// The leader has reported; the others report while it decides.
TEST(the_leader_waits_for_the_first_preferred_processors) {
  const uint16_t preferred[] = {4, 5, 6, 7, 2, 3};
  const int32_t late[] = {5, 7, 4};
  for (const bool is_patient : {true, false}) {
    Gate gate;
    CHECK(gate.enter(1));
    gate.open(1);
    for (const int32_t processor : {2, 3, 6}) gate.report(processor);
    std::thread others([&] {
      for (const int32_t processor : late) {
        if (is_patient) gate.report(processor);
      }
    });
    CHECK_EQUAL(gate.decide(1, 3, 7, preferred, 6, is_patient ? 60 * kSecond : 0, 60 * kSecond) > 2,
                true);
    others.join();
    for (const uint32_t report : {0u, 1u}) {
      CHECK_EQUAL(gate.wait_for_role(1, report) == Gate::kNoRole, is_patient);
    }
    CHECK(gate.wait_for_role(1, 2) != Gate::kNoRole);
  }
}

TEST(the_system_counter_becomes_nanoseconds_without_an_overflow) {
  const uint64_t year = uint64_t{365} * 24 * 3600;
  CHECK_EQUAL(pto_a2a3_nanoseconds(7, 50'000'000), 140u);
  CHECK_EQUAL(pto_a2a3_nanoseconds(year * 50'000'000 + 1, 50'000'000), year * kSecond + 20);
  CHECK_EQUAL(pto_a2a3_nanoseconds(year * 62'500'000 + 5, 62'500'000), year * kSecond + 80);
}

TEST(duplicates_and_strangers_fill_missing_roles) {
  Gate gate;
  for (uint64_t sequence = 1; sequence <= 100; sequence += 2) {
    check_roles(launch(gate, sequence, {2, 2, 2, 0}, 4, 4, 10 * kSecond), 4);
    check_roles(launch(gate, sequence + 1, {9, 40, 2}, 3, 2, 10 * kSecond), 2);
  }
}

TEST(too_few_threads_get_no_role) {
  Gate gate;
  const Launch outcome = launch(gate, 1, {2, 3}, 6, 3, kSecond);
  CHECK_EQUAL(outcome.reported, 2u);
  for (const int32_t role : outcome.roles) CHECK_EQUAL(role, Gate::kNoRole);
  check_roles(launch(gate, 2, {2, 3, 4}, 3, 3, 10 * kSecond), 3);
}

TEST(a_refused_launch_lets_all_threads_go) {
  Gate gate;
  CHECK(gate.enter(1));
  CHECK(!gate.enter(1));
  std::thread follower([&] { CHECK(!gate.wait_until_open(1)); });
  gate.refuse(1);
  follower.join();
  check_roles(launch(gate, 2, {2, 3, 4}, 3, 3, 10 * kSecond), 3);
  CHECK(!gate.wait_until_open(1));
}

TEST(a_full_log_drops_new_entries_and_counts_them) {
  using pto::a2a3::Log;
  const auto ring = std::make_unique<pto_a2a3_log>();
  Log log;
  log.open(reinterpret_cast<uint64_t>(ring.get()), PTO_LOG_INFO);
  log.write(PTO_LOG_DEBUG, "not severe enough");
  CHECK_EQUAL(ring->written, uint64_t{0});
  for (int i = 0; i < PTO_A2A3_LOG_ENTRIES + 3; ++i) {
    log.write(PTO_LOG_WARN, ("message " + std::to_string(i)).c_str());
  }
  CHECK_EQUAL(ring->written, uint64_t{PTO_A2A3_LOG_ENTRIES});
  CHECK_EQUAL(ring->dropped, uint64_t{3});
  CHECK_EQUAL(std::string(ring->entry[63].text), "message 63");
  log.set_read(2);
  log.write(PTO_LOG_ALWAYS, std::string(1000, 'x').c_str());
  CHECK_EQUAL(ring->entry[0].number, uint64_t{PTO_A2A3_LOG_ENTRIES + 1});
  CHECK_EQUAL(std::string(ring->entry[0].text), std::string(495, 'x'));
  CHECK_EQUAL(ring->entry[0].length, 495u);
  CHECK_EQUAL(std::string(ring->entry[1].text), "message 1");
}

// There is no host, so the core waits a second for it.
TEST(a_text_is_dropped_and_counted_if_the_host_does_not_read) {
  const auto ring = std::make_unique<pto_a2a3_texts>();
  const auto slot = std::make_unique<pto_a2a3_slot>();
  ring->slot = reinterpret_cast<uint64_t>(slot.get());
  const auto add = [&](const char* text) { pto::a2a3::add_text(*ring, "kernels/k.cpp", 3, text); };
  for (int i = 0; i < PTO_A2A3_TEXTS; ++i) add(("text " + std::to_string(i)).c_str());
  CHECK_EQUAL(ring->dropped, uint64_t{0});
  add("lost");
  CHECK_EQUAL(ring->written, uint64_t{PTO_A2A3_TEXTS});
  CHECK_EQUAL(ring->dropped, uint64_t{1});
  CHECK_EQUAL(std::string(ring->entry[0].text), "text 0");
  ring->read = 1;
  add("later");
  CHECK_EQUAL(ring->written, uint64_t{PTO_A2A3_TEXTS + 1});
  CHECK_EQUAL(ring->dropped, uint64_t{1});
  CHECK_EQUAL(ring->entry[0].number, uint64_t{PTO_A2A3_TEXTS + 1});
  CHECK_EQUAL(std::string(ring->entry[0].text), "later");
  CHECK_EQUAL(std::string(ring->entry[0].file), "k.cpp");
}

// The cores of a run of two blocks. Logical core c is physical core 3 + 7 * c: AIC 3 and 10, and
// four AIV.
struct CoresOfTwoBlocks {
  static constexpr uint32_t kCount = 6;
  Chip registers;
  std::unique_ptr<pto_a2a3_cores> block = std::make_unique<pto_a2a3_cores>();
  std::unique_ptr<pto_a2a3_progress> progress = std::make_unique<pto_a2a3_progress>();
  pto_a2a3_device config{};
  pto_topology topology{};
  pto::a2a3::Cores cores;
  pto_error error{};

  CoresOfTwoBlocks() {
    chip = &registers;
    config.cores = reinterpret_cast<uint64_t>(block.get());
    config.progress = reinterpret_cast<uint64_t>(progress.get());
    config.gate_timeout_ms = 20;
    topology.blocks = 2;
    topology.cores = kCount;
    for (uint32_t core = 0; core < kCount; ++core) {
      const uint32_t type = core < 2 ? PTO_CORE_AIC : PTO_CORE_AIV;
      topology.core_type[core] = static_cast<uint8_t>(type);
      config.registers[physical(core)] =
          reinterpret_cast<uint64_t>(&registers.pages[physical(core)]);
    }
    cores.open(config);
    report(1);
  }
  ~CoresOfTwoBlocks() { chip = nullptr; }

  static uint32_t physical(uint32_t core) { return 3 + 7 * core; }
  // Every core reports for this launch.
  void report(uint64_t launch) {
    for (uint32_t core = 0; core < kCount; ++core) {
      pto_a2a3_handshake line{};
      line.launch = launch;
      line.physical = physical(core);
      line.core_type = topology.core_type[core];
      block->handshake[core] = line;
    }
  }
  pto_status start(uint64_t launch) { return cores.start(topology, launch, error); }
  pto_status stop(uint64_t launch, bool is_abandoned = false) {
    return cores.stop(launch, [is_abandoned] { return is_abandoned; }, error);
  }
  void expect_refused(const std::string& message) {
    CHECK_EQUAL(start(1), PTO_ERROR_LOST);
    CHECK_CONTAINS(error.message, message);
  }
};

TEST(cores_open_at_their_physical_numbers_and_leave) {
  CoresOfTwoBlocks run;
  for (uint64_t launch = 1; launch <= 20; ++launch) {
    run.report(launch);
    CHECK_EQUAL(run.start(launch), PTO_OK);
    for (uint32_t core = 0; core < run.kCount; ++core) {
      const uint32_t physical = CoresOfTwoBlocks::physical(core);
      const uint32_t fast_path = run.registers.at(physical, PTO_A2A3_FAST_PATH_ENABLE);
      CHECK_EQUAL(fast_path, PTO_A2A3_FAST_PATH_OPEN);
    }
    CHECK_EQUAL(run.stop(launch), PTO_OK);
    CHECK_EQUAL(run.block->closed, launch);
    for (uint32_t core = 0; core < run.kCount; ++core) {
      const uint32_t physical = CoresOfTwoBlocks::physical(core);
      const uint32_t fast_path = run.registers.at(physical, PTO_A2A3_FAST_PATH_ENABLE);
      CHECK_EQUAL(fast_path, PTO_A2A3_FAST_PATH_CLOSE);
    }
  }
}

TEST(a_core_that_has_not_reported_is_named) {
  CoresOfTwoBlocks run;
  run.block->handshake[3].launch = 0;
  run.expect_refused("core 3 of 6 has not reported within 20 ms");
  CHECK_EQUAL(run.error.core, 3);
  CHECK_EQUAL(run.stop(1), PTO_OK);
  CHECK_EQUAL(run.block->closed, uint64_t{1});
}

TEST(wrong_reports_are_refused) {
  {
    CoresOfTwoBlocks run;
    run.block->handshake[2].physical = 4;
    run.expect_refused("core 2 of 6 reports a physical core without registers");
  }
  {
    CoresOfTwoBlocks run;
    run.block->handshake[5].physical = run.block->handshake[4].physical;
    run.expect_refused("core 5 of 6 reports the physical core of another");
  }
  {
    CoresOfTwoBlocks run;
    run.block->handshake[1].core_type = PTO_CORE_AIV;
    run.expect_refused("core 1 of 6 reports the wrong core type");
  }
}

// The core that is silent is closed by force: its launch is marked as over, and the run is lost.
TEST(a_core_that_is_silent_at_its_register_is_named_and_not_waited_for) {
  CoresOfTwoBlocks run;
  run.registers.silent.insert(CoresOfTwoBlocks::physical(1));
  run.expect_refused("core 1 of 6 does not answer at its register");
  CHECK_EQUAL(run.stop(1), PTO_ERROR_LOST);
  CHECK_CONTAINS(run.error.message, "core 1 has no task but does not leave within 20 ms");
}

TEST(a_free_core_that_does_not_leave_is_named) {
  CoresOfTwoBlocks run;
  run.registers.no_leaver.insert(CoresOfTwoBlocks::physical(4));
  CHECK_EQUAL(run.start(1), PTO_OK);
  CHECK_EQUAL(run.stop(1), PTO_ERROR_LOST);
  CHECK_CONTAINS(run.error.message, "core 4 has no task but does not leave");
}

TEST(a_running_kernel_is_waited_for_until_the_host_abandons_it) {
  CoresOfTwoBlocks run;
  CHECK_EQUAL(run.start(1), PTO_OK);
  const uint32_t physical = CoresOfTwoBlocks::physical(2);
  run.registers.silent.insert(physical);
  pto_payload payload{};
  payload.func_id = 9;
  payload.task = 33;
  run.cores.dispatch({2, sizeof payload, 0, &payload});
  pto_core_mask in_flight{};
  pto::engine::insert(in_flight, 2);
  pto_poll_result result{};
  run.cores.poll(in_flight, result);
  CHECK(pto::engine::empty(result.done));
  CHECK(run.cores.is_busy(2));
  CHECK_EQUAL(pto_a2a3_in_flight(run.progress.get(), run.block.get(), 2), 1);
  CHECK_EQUAL(run.stop(1, true), PTO_ERROR_LOST);
  CHECK_CONTAINS(run.error.message, "core 2 still runs kernel 9 of task 33");
  CHECK_EQUAL(run.error.task, int64_t{33});
}

TEST(a_finished_task_is_reported_once_and_counted) {
  CoresOfTwoBlocks run;
  CHECK_EQUAL(run.start(1), PTO_OK);
  const struct {
    pto_payload header;
    uint64_t arguments[PTO_MAX_KERNEL_ARGS];
  } payload{};
  for (uint64_t round = 1; round <= 3; ++round) {
    run.cores.dispatch({5, sizeof payload, 0, &payload.header});
    pto_core_mask in_flight{};
    pto::engine::insert(in_flight, 5);
    pto_poll_result result{};
    run.cores.poll(in_flight, result);
    CHECK_EQUAL(pto::engine::take_first(result.done), 5u);
    CHECK(pto::engine::empty(in_flight) && pto::engine::empty(result.faulted));
    CHECK_EQUAL(run.cores.tasks(), round);
    CHECK(!run.cores.is_busy(5));
  }
  CHECK_EQUAL(run.stop(1), PTO_OK);
}

// A dump in memory of the host. Each task of core c has one argument: an address in its buffer.
struct DumpInMemory {
  static constexpr uint32_t kCores = 4;
  static constexpr uint64_t kPayload = sizeof(pto_payload) + sizeof(uint64_t);
  static constexpr uint64_t kElements = 24;
  // with the address of the kernel in place of its name, and one tensor
  static constexpr uint64_t kRecord =
      sizeof(pto_dump_record) + sizeof(pto_dump_tensor) + 8 + kPayload + kElements;

  struct alignas(64) {
    pto_a2a3_dump head{};
    uint64_t kernels[2] = {10, 30};
    uint64_t tasks[1] = {77};
    pto_a2a3_range buffers[kCores];
    uint64_t pad[5];
    char records[1 << 20];
  } memory;
  uint64_t arrays[kCores][kElements / 8] = {};
  pto_a2a3_slot slots[kCores] = {};
  Pool pool;
  pto::a2a3::DeviceDump dump;

  DumpInMemory(uint32_t level, uint64_t limit) {
    memory.head.level = level;
    memory.head.num_kernels = 2;
    memory.head.num_tasks = 1;
    memory.head.num_buffers = kCores;
    memory.head.records = offsetof(decltype(memory), records);
    memory.head.limit = limit;
    for (uint32_t core = 0; core < kCores; ++core) {
      const auto begin = reinterpret_cast<uint64_t>(arrays[core]);
      memory.buffers[core] = {begin, begin + kElements};
      slots[core].length = kPayload;
      slots[core].payload.num_args = 1;
      *pto_payload_args(&slots[core].payload) = begin + 8;
    }
    dump.begin(reinterpret_cast<uint64_t>(&memory.head), pool);
  }

  void call(uint32_t core, uint64_t kernel, uint64_t task, bool has_failed = false) {
    slots[core].payload.kernel = kernel;
    slots[core].payload.task = task;
    dump.before(slots[core], core, false);
    arrays[core][1] += task;
    dump.after(slots[core], core, has_failed);
  }
  // The phase, the task and the second word of the array of each record.
  struct Found {
    uint32_t phase;
    uint64_t task, word;
    bool operator==(const Found&) const = default;
  };
  std::vector<Found> found(uint32_t core) const {
    std::vector<Found> all;
    pto_dump_record record;
    for (uint64_t at = 0; at < memory.head.end; at += record.bytes) {
      std::memcpy(&record, memory.records + at, sizeof record);
      CHECK_EQUAL(record.magic, PTO_DUMP_MAGIC);
      CHECK_EQUAL(record.bytes, (kRecord + 7) & ~uint64_t{7});
      if (record.core != core) continue;
      uint64_t word = 0;
      std::memcpy(&word, memory.records + at + kRecord - kElements + 8, sizeof word);
      all.push_back({record.phase, record.task, word});
    }
    return all;
  }
};

TEST(selected_calls_are_recorded_before_and_after) {
  DumpInMemory run(PTO_DUMP_ALL, sizeof run.memory.records);
  run.call(2, 10, 5);
  run.call(2, 20, 6);
  run.call(2, 20, 77, true);
  const std::vector<DumpInMemory::Found> expected = {{PTO_DUMP_BEFORE, 5, 0},
                                                     {PTO_DUMP_AFTER, 5, 5},
                                                     {PTO_DUMP_BEFORE, 77, 11},
                                                     {PTO_DUMP_AFTER_FAILURE, 77, 88}};
  CHECK(run.found(2) == expected);
  CHECK_EQUAL(run.memory.head.lost, uint64_t{0});
  run.dump.begin(0, run.pool);
  CHECK(!run.dump.is_on());
}

TEST(calls_without_a_failure_share_one_record_if_only_failures_are_kept) {
  DumpInMemory run(PTO_DUMP_FAILED, sizeof run.memory.records);
  for (uint64_t task = 1; task <= 3; ++task) run.call(1, 30, task);
  const std::vector<DumpInMemory::Found> dropped = {{PTO_DUMP_DROPPED, 3, 3}};
  CHECK(run.found(1) == dropped);
  run.call(1, 30, 4, true);
  const std::vector<DumpInMemory::Found> failed = {{PTO_DUMP_BEFORE, 4, 6},
                                                   {PTO_DUMP_AFTER_FAILURE, 4, 10}};
  CHECK(run.found(1) == failed);
}

TEST(records_that_do_not_fit_are_counted) {
  DumpInMemory run(PTO_DUMP_OUTPUTS, 3 * DumpInMemory::kRecord);
  for (uint64_t task = 1; task <= 5; ++task) run.call(0, 10, task);
  CHECK_EQUAL(run.found(0).size(), size_t{3});
  CHECK_EQUAL(run.memory.head.lost, uint64_t{2});
}

// The place of a record is reserved first: the hash in the last record of a buffer must be the last
// one that was made.
TEST(no_array_is_read_for_a_record_that_does_not_fit) {
  for (const uint32_t level : {PTO_DUMP_HASHES, PTO_DUMP_ALL}) {
    DumpInMemory run(level, 8);
    run.memory.buffers[0] = {64, 128};  // nothing can be read there
    *pto_payload_args(&run.slots[0].payload) = 64;
    run.call(0, 10, 5);
    CHECK_EQUAL(run.memory.head.lost, uint64_t{2});
  }
}

TEST(a_task_that_ends_after_the_run_is_recorded) {
  CoresOfTwoBlocks run;
  DumpInMemory records(PTO_DUMP_ALL, sizeof records.memory.records);
  CHECK_EQUAL(run.start(1), PTO_OK);
  run.cores.dump().begin(reinterpret_cast<uint64_t>(&records.memory.head), records.pool);
  run.registers.silent.insert(CoresOfTwoBlocks::physical(2));
  pto_payload& payload = records.slots[2].payload;
  payload.kernel = 10;
  payload.task = 5;
  run.cores.dispatch({2, DumpInMemory::kPayload, 0, &payload});
  records.arrays[2][1] = 9;
  run.registers.silent.clear();
  CHECK_EQUAL(run.stop(1), PTO_OK);
  const std::vector<DumpInMemory::Found> expected = {{PTO_DUMP_BEFORE, 5, 0},
                                                     {PTO_DUMP_AFTER, 5, 9}};
  CHECK(records.found(2) == expected);
}

// Memory with a cache: what kernels wrote is read after invalidate().
struct CachedMemory {
  char* cached;
  const char* written;
  mutable int dropped = 0;

  bool contains(uint64_t, uint64_t) const { return true; }
  bool find_buffer(uint64_t, uint64_t*, uint64_t*) const { return false; }
  void invalidate(const pto_dump_tensor& view) const {
    ++dropped;
    std::memcpy(cached, written, view.buffer_bytes);
  }
};

TEST(an_array_is_not_in_the_cache_before_and_after_it_is_read) {
  char cached[] = "old", written[] = "new", record[512] = {};
  const CachedMemory memory{cached, written};
  struct {
    pto_payload head{};
    uint64_t argument = 0;
  } payload;
  pto_tensor_data tensor{};
  tensor.buffer = {reinterpret_cast<uint64_t>(cached), sizeof cached};
  tensor.ndims = 1;
  tensor.dtype = PTO_DTYPE_UINT8;
  tensor.tag = PTO_TAG_OUTPUT;
  tensor.shapes[0] = tensor.raw_shapes[0] = sizeof cached;
  payload.head.num_args = 1;
  payload.head.relative_args = 1;
  payload.argument = reinterpret_cast<uint64_t>(&tensor);
  pto::engine::DumpedCall<CachedMemory> dumped(payload.head, memory);
  CHECK_EQUAL(dumped.head.tensors, 1u);
  dumped.place();
  dumped.copy_elements(record);
  CHECK_EQUAL(std::string(record + dumped.tensors[0].at), "new");
  CHECK_EQUAL(memory.dropped, 2);
  dumped.place_hashes();
  dumped.hash();
  pto::engine::DumpHash hash;
  hash.add(written, sizeof written);
  CHECK_EQUAL(dumped.tensors[0].at, hash.value());
  CHECK_EQUAL(memory.dropped, 4);
}

TEST(a_transposed_array_has_the_parts_of_its_memory) {
  pto_dump_tensor view{};
  view.dtype = PTO_DTYPE_FLOAT32;
  view.ndims = 3;
  const uint64_t shapes[] = {5, 2, 3}, strides[] = {4, 80, 20};
  std::memcpy(view.shapes, shapes, sizeof shapes);
  std::memcpy(view.strides, strides, sizeof strides);
  std::vector<uint64_t> parts;
  const auto add = [&](const char*, uint64_t bytes) { parts.push_back(bytes); };
  pto::engine::for_each_part(view, 0, nullptr, add);
  CHECK_EQUAL(parts.size(), size_t{30});
  parts.clear();
  pto::engine::for_each_part(pto::engine::in_memory_order(view), 0, nullptr, add);
  CHECK(parts == (std::vector<uint64_t>{60, 60}));
}

TEST(several_threads_record_at_the_same_time) {
  constexpr uint64_t kTasks = 300;
  DumpInMemory run(PTO_DUMP_ALL, sizeof run.memory.records);
  std::vector<std::thread> threads;
  for (uint32_t core = 0; core < DumpInMemory::kCores; ++core) {
    threads.emplace_back([&run, core] {
      for (uint64_t task = 0; task < kTasks; ++task) run.call(core, 10, task);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t core = 0; core < DumpInMemory::kCores; ++core) {
    const auto found = run.found(core);
    CHECK_EQUAL(found.size(), size_t{2 * kTasks});
    CHECK_EQUAL(found.back().word, kTasks * (kTasks - 1) / 2);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
