// The host's side of a dump: the memory for the records of the device, and the file of the records.
#include <cerrno>
#include <cstring>
#include <vector>

#include "life/dump.hpp"
#include "vendor.hpp"

using namespace pto::a2a3;

namespace {

// A record with one tensor of 16 bytes, as the device writes it.
struct DeviceRecord {
  pto_dump_record head = {};
  pto_dump_tensor tensor = {};
  uint64_t kernel = 0;
  char payload[24] = {};
  char elements[16] = {};

  explicit DeviceRecord(uint64_t task) {
    head.magic = PTO_DUMP_MAGIC;
    head.bytes = sizeof *this;
    head.task = task;
    head.func_id = 3;
    head.phase = PTO_DUMP_AFTER;
    head.tensors = 1;
    head.name = sizeof kernel;
    head.payload = sizeof payload;
    tensor.at = offsetof(DeviceRecord, elements);
    tensor.bytes = sizeof elements;
  }
};

// A card, and the file of the caller with a limit for all records.
struct HostDump {
  explicit HostDump(uint64_t limit) : fake(vendor::fresh()), card(fake.driver), aicpu(card) {
    pto_error error = {};
    CHECK_EQUAL(card.open({}, &error), PTO_OK);
    header.magic = PTO_DUMP_MAGIC;
    header.first = sizeof header;
    header.limit = limit;
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(&header), sizeof header);
    config.enable_dump_tensor = PTO_DUMP_ALL;
    std::strcpy(config.output_prefix, path.c_str());
  }
  // Nothing is left on the card.
  ~HostDump() {
    vendor::fs::remove(path);
    card.close();
    CHECK_EQUAL(fake.control.findings(), std::string());
  }

  pto_status begin() {
    pto_error error = {};
    return dump.begin(config, {}, &error);
  }
  void expect_begin() { CHECK_EQUAL(begin(), PTO_OK); }
  // The device has written these records.
  void write(const std::vector<DeviceRecord>& records) {
    pto_a2a3_dump head = {};
    const uint64_t address = dump.address();
    CHECK_EQUAL(card.memory().copy_out(&head, address, sizeof head, nullptr), PTO_OK);
    head.end = records.size() * sizeof records[0];
    CHECK_EQUAL(card.memory().copy_in(address, &head, sizeof head, nullptr), PTO_OK);
    CHECK_EQUAL(card.memory().copy_in(address + head.records, records.data(), head.end, nullptr),
                PTO_OK);
  }
  // Ends the dump, and returns the tasks of the records in the file.
  std::vector<uint64_t> end() {
    dump.end();
    CHECK_EQUAL(dump.address(), uint64_t{0});
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CHECK(text.size() >= sizeof header);
    std::memcpy(&header, text.data(), sizeof header);
    std::vector<uint64_t> tasks;
    pto_dump_record record = {};
    for (uint64_t at = header.first; at < text.size(); at += record.bytes) {
      CHECK(text.size() - at >= sizeof record);
      std::memcpy(&record, &text[at], sizeof record);
      CHECK(record.bytes <= text.size() - at);
      const uint64_t name = at + sizeof record + record.tensors * sizeof(pto_dump_tensor);
      CHECK_EQUAL(text.substr(name, record.name), std::string("uploaded_3"));
      tasks.push_back(record.task);
    }
    return tasks;
  }

  const std::string path =
      (vendor::fs::temp_directory_path() / ("pto_dump_" + std::to_string(getpid()))).string();
  vendor::Fake& fake;
  Card card;
  AicpuDevice aicpu;
  Kernels kernels{card, aicpu};
  RunDump dump{card, kernels};
  pto_dump_header header = {};
  pto_call_config config = {};
};

using Tasks = std::vector<uint64_t>;

TEST(the_records_of_the_device_become_those_of_the_file) {
  HostDump run(1 << 20);
  for (uint64_t round = 0; round < 2; ++round) {
    run.expect_begin();
    DeviceRecord dropped(5);
    dropped.head.phase = PTO_DUMP_DROPPED;
    dropped.head.tensors = ~0u;  // the device was writing it
    run.write({DeviceRecord(4), dropped, DeviceRecord(6)});
    CHECK(run.end() == (Tasks{4, 6}));
    CHECK_EQUAL(run.header.lost + run.header.error, uint64_t{0});
  }
}

// A kernel that writes out of bounds can change each byte of a record.
TEST(the_records_before_a_damaged_one_are_kept) {
  const struct {
    const char* name;
    void (*damage)(pto_dump_record&);
  } damages[] = {
      {"magic", [](pto_dump_record& head) { head.magic = 7; }},
      {"no bytes", [](pto_dump_record& head) { head.bytes = 0; }},
      {"too few bytes", [](pto_dump_record& head) { head.bytes = 64 + 128; }},
      {"odd bytes", [](pto_dump_record& head) { head.bytes -= 4; }},
      {"too many bytes", [](pto_dump_record& head) { head.bytes = 1 << 21; }},
      {"all bytes", [](pto_dump_record& head) { head.bytes = ~uint64_t{7}; }},
      {"tensors", [](pto_dump_record& head) { head.tensors = 3; }},
      {"tensors of 2^32 bytes", [](pto_dump_record& head) { head.tensors = 1u << 25; }},
      {"payload", [](pto_dump_record& head) { head.payload = ~0u; }},
  };
  for (const auto& [name, damage] : damages) {
    HostDump run(1 << 20);
    run.expect_begin();
    std::vector<DeviceRecord> records{DeviceRecord(1), DeviceRecord(2), DeviceRecord(3)};
    damage(records[1].head);
    run.write(records);
    if (run.end() != Tasks{1}) check::fail(__FILE__, __LINE__, name);
    CHECK_EQUAL(run.header.error, static_cast<uint32_t>(EIO));
    CHECK_EQUAL(run.header.lost, uint64_t{0});  // it is not known how many are missing
  }
}

TEST(records_are_missing_if_memory_cannot_be_read) {
  HostDump run(1 << 20);
  run.expect_begin();
  run.write({DeviceRecord(1)});
  run.fake.control.fail("aclrtMemcpy", 2, 507000, 0);  // the first copy is that of the head
  CHECK(run.end().empty());
  CHECK_EQUAL(run.header.error, static_cast<uint32_t>(EIO));
  CHECK_EQUAL(run.header.lost, uint64_t{0});
}

TEST(the_limit_of_the_file_changes_only_if_the_device_has_less_memory) {
  for (const uint64_t limit : {uint64_t{100'001}, uint64_t{1} << 40}) {
    HostDump run(limit);
    run.expect_begin();
    run.end();
    const bool has_memory = limit < uint64_t{64} << 20;  // of the fake driver
    CHECK_EQUAL(run.header.limit == limit, has_memory);
  }
}

TEST(a_dump_that_cannot_begin_has_no_records) {
  HostDump run(1 << 20);
  run.fake.control.fail("aclrtMemcpy", 1, 207001, 0);  // the device remains usable
  CHECK(run.begin() != PTO_OK);
  CHECK(run.end().empty());
  CHECK_EQUAL(run.header.lost + run.header.error, uint64_t{0});
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
