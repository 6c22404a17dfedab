#include "device_process/driver.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "check.hpp"

namespace {

constexpr int kTimeoutMs = 60'000;

pid_t start(int socket, const std::vector<std::string>& settings) {
  const std::string number = std::to_string(socket);
  std::vector<const char*> words{PTO_DEVICE_PROCESS, number.c_str()};
  for (const std::string& setting : settings) words.push_back(setting.c_str());
  words.push_back(nullptr);
  const pid_t process = fork();
  if (process == 0) {
    execv(words[0], const_cast<char* const*>(words.data()));
    _exit(127);
  }
  return process;
}

}  // namespace

Silicon::Silicon(const std::vector<std::string>& settings) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  const int theirs = dup(pair[1]);  // inherited, as dup() clears FD_CLOEXEC
  close(pair[1]);
  process_ = start(theirs, settings);
  close(theirs);
  socket_ = pair[0];
  const int file = memfd_create("device_memory", MFD_CLOEXEC);
  CHECK(ftruncate(file, static_cast<off_t>(kBytes)) == 0);
  void* none = mmap(reinterpret_cast<void*>(kMemory), kBytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(none == reinterpret_cast<void*>(kMemory));
  void* alias = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(alias != MAP_FAILED);
  alias_ = static_cast<char*>(alias);
  silicon_request map{};
  map.kind = SILICON_MAP;
  map.address = kMemory;
  map.bytes = kBytes;
  const silicon_answer answer = request(map, file);
  close(file);
  if (answer.kind != SILICON_DONE) check::fail(__FILE__, __LINE__, answer.message);
}

Silicon::~Silicon() {
  end();
  munmap(alias_, kBytes);
  munmap(reinterpret_cast<void*>(kMemory), kBytes);
}

uint64_t Silicon::allocate(uint64_t bytes) {
  const uint64_t offset = used_;
  CHECK(offset + bytes <= kBytes);
  used_ = (offset + bytes + 63) / 64 * 64;
  if (used_ % 1024 == 0) used_ += 64;
  // Memory is not cleared; large blocks stay sparse.
  if (bytes <= 1 << 22) std::memset(alias(kMemory + offset, bytes), 0xA5, bytes);
  return kMemory + offset;
}

void Silicon::copy_in(uint64_t address, const void* from, uint64_t bytes) {
  std::memcpy(alias(address, bytes), from, bytes);
}

void Silicon::copy_out(void* to, uint64_t address, uint64_t bytes) const {
  std::memcpy(to, alias(address, bytes), bytes);
}

char* Silicon::alias(uint64_t address, uint64_t bytes) const {
  CHECK(address >= kMemory && address + bytes <= kMemory + kBytes);
  return alias_ + (address - kMemory);
}

uint64_t Silicon::upload_file(const std::string& path, uint64_t& bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) check::fail(__FILE__, __LINE__, "cannot read " + path);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  bytes = text.size();
  const uint64_t address = allocate(bytes);
  copy_in(address, text.data(), bytes);
  return address;
}

silicon_info Silicon::query() {
  silicon_request message{};
  message.kind = SILICON_QUERY;
  message.tag = ++tags_;
  CHECK(send(socket_, &message, sizeof message, MSG_NOSIGNAL) == sizeof message);
  silicon_info info{};
  CHECK(receive(&info, sizeof info, kTimeoutMs));
  CHECK_EQUAL(info.tag, message.tag);
  return info;
}

uint64_t Silicon::load(uint32_t kind, const std::string& path) {
  silicon_request message{};
  message.kind = kind;
  message.address = upload_file(path, message.bytes);
  const silicon_answer answer = request(message);
  if (answer.kind != SILICON_DONE) check::fail(__FILE__, __LINE__, answer.message);
  return answer.handle;
}

uint64_t Silicon::launch(uint32_t kind, uint64_t handle, const std::string& symbol,
                         uint32_t threads, const void* arguments, uint64_t bytes) {
  silicon_request message{};
  message.kind = kind;
  message.handle = handle;
  message.threads = threads;
  CHECK(symbol.size() < sizeof message.symbol && bytes <= sizeof message.arguments);
  std::memcpy(message.symbol, symbol.c_str(), symbol.size());
  std::memcpy(message.arguments, arguments, bytes);
  message.argument_bytes = bytes;
  const silicon_answer answer = request(message);
  if (answer.kind != SILICON_DONE) check::fail(__FILE__, __LINE__, answer.message);
  return message.tag;
}

// Ends of launches may come before the answer to a request.
silicon_answer Silicon::request(silicon_request& message, int descriptor) {
  message.tag = ++tags_;
  iovec bytes{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr head{};
  head.msg_iov = &bytes;
  head.msg_iovlen = 1;
  if (descriptor >= 0) {
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&head);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  }
  CHECK(sendmsg(socket_, &head, MSG_NOSIGNAL) == sizeof message);
  silicon_answer answer{};
  while (true) {
    CHECK(receive(&answer, sizeof answer, kTimeoutMs));
    if (answer.kind == SILICON_DONE || answer.kind == SILICON_FAILED) break;
    ended_[answer.tag] = answer;
  }
  CHECK_EQUAL(answer.tag, message.tag);
  return answer;
}

silicon_answer Silicon::wait(uint64_t tag) {
  while (ended_.count(tag) == 0) {
    silicon_answer answer{};
    if (!receive(&answer, sizeof answer, kTimeoutMs)) return {};
    ended_[answer.tag] = answer;
  }
  return ended_[tag];
}

bool Silicon::has_ended(uint64_t tag) {
  silicon_answer answer{};
  while (ended_.count(tag) == 0 && receive(&answer, sizeof answer, 0)) ended_[answer.tag] = answer;
  return ended_.count(tag) != 0;
}

// Returns false if nothing comes in time, or the process has ended.
bool Silicon::receive(void* answer, size_t bytes, int timeout_ms) {
  pollfd ready{socket_, POLLIN, 0};
  if (poll(&ready, 1, timeout_ms) != 1) return false;
  return recv(socket_, answer, bytes, 0) == static_cast<ssize_t>(bytes);
}

int Silicon::end() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  return process_ > 0 ? wait_for_exit() : 0;
}

int Silicon::wait_for_exit() {
  int status = 0;
  CHECK_EQUAL(waitpid(process_, &status, 0), process_);
  process_ = -1;
  return status;
}

void Silicon::kill() const {
  ::kill(process_, SIGKILL);
}
