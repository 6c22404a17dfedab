#include "life/dump.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "error.hpp"

namespace pto::a2a3 {

namespace {

template <class Element>
void put(std::vector<char>& to, const Element* elements, size_t count) {
  const auto* bytes = reinterpret_cast<const char*>(elements);
  to.insert(to.end(), bytes, bytes + count * sizeof(Element));
}

// The bytes of records that the host copies at a time.
constexpr uint64_t kPart = uint64_t{16} << 20;

// Returns whether a record has its parts. A kernel may have written to its memory, and the device
// may have left it incomplete.
bool is_valid(const pto_dump_record& record) {
  const uint64_t content = sizeof record + uint64_t{record.tensors} * sizeof(pto_dump_tensor) +
                           sizeof(uint64_t) + record.payload;
  const bool has_content = record.phase == PTO_DUMP_DROPPED || content <= record.bytes;
  return record.magic == PTO_DUMP_MAGIC && record.bytes % 8 == 0 && record.bytes >= sizeof record &&
         has_content;
}

}  // namespace

pto_status RunDump::begin(const pto_call_config& config, std::vector<pto_a2a3_range> buffers,
                          pto_error* error) {
  std::string names;
  pto_status status = open(config.output_prefix, names, error);
  if (status != PTO_OK) return status;
  std::set<std::string> kernels;
  std::set<uint64_t> tasks;
  for (size_t at = 0; at < names.size(); at += std::strlen(&names[at]) + 1) {
    if (names[at] == '#') {
      tasks.insert(std::strtoull(&names[at + 1], nullptr, 10));
    } else {
      kernels.insert(&names[at]);
    }
  }
  const auto begins_before = [](const auto& one, const auto& other) {
    return one.begin < other.begin;
  };
  std::sort(buffers.begin(), buffers.end(), begins_before);
  pto_a2a3_dump head = {};
  std::vector<char> input(sizeof head);
  for (const auto& [address, kernel] : kernels_.all()) {
    if (!kernels.contains(kernel.name)) continue;
    put(input, &address, 1);
    ++head.num_kernels;
  }
  for (const uint64_t task : tasks) put(input, &task, 1);
  put(input, buffers.data(), buffers.size());
  head.level = static_cast<uint32_t>(config.enable_dump_tensor);
  head.is_for_all = names.empty() ? 1 : 0;
  head.num_tasks = static_cast<uint32_t>(tasks.size());
  head.num_buffers = static_cast<uint32_t>(buffers.size());
  status = pass(input, head, error);
  if (status != PTO_OK) end();
  return status;
}

pto_status RunDump::open(const char* path, std::string& names, pto_error* error) {
  file_ = ::open(path, O_RDWR | O_CLOEXEC);
  const bool is_read = file_ >= 0 && pread(file_, &header_, sizeof header_, 0) == sizeof header_;
  if (!is_read || header_.magic != PTO_DUMP_MAGIC) {
    const std::string why = is_read ? "it is no file of a dump" : std::strerror(errno);
    end();
    return fail(error, PTO_ERROR_USAGE, "cannot write the dump of the run to %s: %s", path,
                why.c_str());
  }
  names.resize(header_.names);
  const ssize_t read = pread(file_, names.data(), names.size(), sizeof header_);
  names.resize(static_cast<size_t>(std::max<ssize_t>(read, 0)));
  return PTO_OK;
}

// Allocates the memory for the records: at most the limit of the file, and half of what the device
// has left, because the run may need more memory of the device.
pto_status RunDump::pass(std::vector<char>& input, const pto_a2a3_dump& head, pto_error* error) {
  CardMemory& memory = card_.memory();
  pto_a2a3_dump passed = head;
  size_t unused = 0, total = 0;
  pto_status status = memory.usage(&unused, &total, error);
  header_.limit = std::min<uint64_t>(header_.limit, unused / 2);
  passed.limit = header_.limit;
  passed.records = (input.size() + PTO_A2A3_LINE - 1) / PTO_A2A3_LINE * PTO_A2A3_LINE;
  std::memcpy(input.data(), &passed, sizeof passed);
  if (status == PTO_OK) status = memory.allocate(passed.records + passed.limit, &address_, error);
  if (status != PTO_OK) return status;
  records_ = address_ + passed.records;
  written_ = 0;
  status = memory.copy_in(address_, input.data(), input.size(), error);
  if (status != PTO_OK) memory.free(std::exchange(address_, 0), nullptr);
  return status;
}

void RunDump::end() noexcept {
  if (address_ != 0) write_file();
  if (address_ != 0 && card_.is_usable()) card_.memory().free(address_, nullptr);
  address_ = 0;
  if (file_ < 0) return;
  // A header that is not written leaves the records: only the count of lost ones is missing.
  [[maybe_unused]] const ssize_t count = pwrite(file_, &header_, sizeof header_, 0);
  close(std::exchange(file_, -1));
}

bool RunDump::copy_out(void* host, uint64_t address, uint64_t bytes) {
  if (card_.is_usable()) return card_.memory().copy_out(host, address, bytes, nullptr) == PTO_OK;
  const auto lock = card_.session().lock();
  return card_.session().salvage(host, address, bytes);
}

void RunDump::write_file() noexcept try {
  pto_a2a3_dump head = {};
  if (!copy_out(&head, address_, sizeof head)) return note(EIO);
  header_.lost += head.lost;
  std::vector<char> part;  // of the records
  const uint64_t end = std::min(head.end, header_.limit);
  for (uint64_t at = 0, part_at = 0; at < end;) {
    // Returns the bytes at `at`, or null if they cannot be read.
    const auto read = [&](uint64_t bytes) -> const char* {
      if (bytes > end - at) return nullptr;
      if (at - part_at + bytes <= part.size()) return &part[at - part_at];
      part_at = at;
      part.resize(std::min(std::max(bytes, kPart), end - at));
      return copy_out(part.data(), records_ + at, part.size()) ? part.data() : nullptr;
    };
    pto_dump_record record = {};
    const char* content = read(sizeof record);
    if (content != nullptr) std::memcpy(&record, content, sizeof record);
    content = is_valid(record) ? read(record.bytes) : nullptr;
    if (content == nullptr) return note(EIO);
    if (record.phase != PTO_DUMP_DROPPED) append(record, content, head.level == PTO_DUMP_HASHES);
    at += record.bytes;
  }
} catch (const std::bad_alloc&) {
  note(ENOMEM);
}

// Adds a record to the file, with the name and the library of its kernel.
void RunDump::append(pto_dump_record head, const char* record, bool is_hashed) {
  std::vector<pto_dump_tensor> tensors(head.tensors);
  const char* at = record + sizeof head;
  const auto take = [&at](void* to, uint64_t bytes) {
    std::memcpy(to, at, bytes);
    at += bytes;
  };
  uint64_t kernel = 0;
  take(tensors.data(), tensors.size() * sizeof tensors[0]);
  take(&kernel, sizeof kernel);
  const auto found = kernels_.all().find(kernel);
  const bool is_known = found != kernels_.all().end();
  const std::string name =
      is_known ? found->second.name : "uploaded_" + std::to_string(head.func_id);
  const std::string library = is_known && !is_hashed ? found->second.path : "";
  const auto rest = static_cast<uint64_t>(record + head.bytes - at);
  head.name = static_cast<uint32_t>(name.size());
  head.library = static_cast<uint32_t>(library.size());
  for (pto_dump_tensor& tensor : tensors) {
    if (!is_hashed) tensor.at += name.size() + library.size() - sizeof kernel;
  }
  const uint64_t bytes = head.bytes + name.size() + library.size() - sizeof kernel;
  head.bytes = (bytes + 7) & ~uint64_t{7};
  if (head.bytes > header_.limit - written_) {
    ++header_.lost;
    return;
  }
  std::vector<char> start;
  put(start, &head, 1);
  put(start, tensors.data(), tensors.size());
  put(start, name.data(), name.size());
  put(start, library.data(), library.size());
  uint64_t zeros = 0;
  const iovec parts[] = {
      {start.data(), start.size()}, {const_cast<char*>(at), rest}, {&zeros, head.bytes - bytes}};
  const auto place = static_cast<off_t>(header_.first + written_);
  const ssize_t written = pwritev(file_, parts, 3, place);
  if (written == static_cast<ssize_t>(head.bytes)) {
    written_ += head.bytes;
    return;
  }
  header_.limit = written_;  // this record is incomplete, so it is the last one
  ++header_.lost;
  note(written < 0 ? static_cast<uint32_t>(errno) : ENOSPC);
}

void RunDump::note(uint32_t error) noexcept {
  if (header_.error == 0) header_.error = error;
}

}  // namespace pto::a2a3
