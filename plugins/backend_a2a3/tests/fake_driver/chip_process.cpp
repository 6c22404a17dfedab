#include "chip_process.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

namespace pto::fake {

namespace {

constexpr int kTheirSocket = 3;
constexpr std::chrono::milliseconds kStopPeriod{2};

Code exception_at(uint32_t place) {
  if (place == SILICON_ON_AICPU) return kAicpuException;
  return place == SILICON_ON_AIC ? kAicException : kAivException;
}

}  // namespace

ChipProcess::ChipProcess(const Settings& settings, const Memory& memory) {
  if (!start(settings) || !introduce(memory)) {
    std::fprintf(stderr, "fake driver: the device process %s does not start\n",
                 settings.process.c_str());
    std::abort();
  }
  is_gone_ = false;
  receiver_ = std::thread([this] { receive(); });
}

ChipProcess::~ChipProcess() {
  if (process_ > 0) {
    shutdown(socket_, SHUT_RDWR);
    wait_for_exit();
  }
  if (receiver_.joinable()) receiver_.join();
  if (socket_ >= 0) close(socket_);
}

bool ChipProcess::start(const Settings& settings) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return false;
  socket_ = pair[0];
  std::vector<std::string> words{settings.process, std::to_string(kTheirSocket),
                                 "folder=" + settings.libraries};
  std::istringstream text(settings.silicon);
  for (std::string word; text >> word;) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pair[1], kTheirSocket);
  const int failure = posix_spawn(&process_, settings.process.c_str(), &actions, nullptr,
                                  arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pair[1]);
  if (failure != 0) process_ = -1;
  return failure == 0;
}

// Gives the process the device memory, and reads what the chip has.
bool ChipProcess::introduce(const Memory& memory) {
  silicon_request request{};
  request.kind = SILICON_MAP;
  request.address = memory.base();
  request.bytes = memory.bytes();
  silicon_answer answer{};
  if (!send(request, memory.descriptor())) return false;
  if (recv(socket_, &answer, sizeof answer, 0) != sizeof answer) return false;
  if (answer.kind != SILICON_DONE) {
    std::fprintf(stderr, "fake driver: %s\n", answer.message);
    return false;
  }
  request = {};
  request.kind = SILICON_QUERY;
  return send(request, -1) && recv(socket_, &info_, sizeof info_, 0) == sizeof info_;
}

bool ChipProcess::send(const silicon_request& request, int descriptor) const {
  iovec bytes{const_cast<silicon_request*>(&request), sizeof request};
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
  return sendmsg(socket_, &head, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof request);
}

void ChipProcess::receive() {
  silicon_answer answer{};
  while (recv(socket_, &answer, sizeof answer, 0) == sizeof answer) {
    const bool is_end = answer.kind == SILICON_COMPLETED || answer.kind == SILICON_CRASHED;
    const std::lock_guard lock(mutex_);
    (is_end ? ends_ : replies_)[answer.tag] = answer;
    has_crashed_ = has_crashed_ || answer.kind == SILICON_CRASHED;
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  is_gone_ = true;
  changed_.notify_all();
}

// Returns the answer to a request; its kind is 0 if the process has gone.
silicon_answer ChipProcess::ask(silicon_request& request) {
  std::unique_lock lock(mutex_);
  request.tag = ++tags_;
  lock.unlock();
  if (!send(request, -1)) return {};
  lock.lock();
  changed_.wait(lock, [&] { return is_gone_ || replies_.contains(request.tag); });
  const auto found = replies_.extract(request.tag);
  return found.empty() ? silicon_answer{} : found.mapped();
}

uint64_t ChipProcess::load(uint32_t kind, uint64_t address, uint64_t bytes) {
  silicon_request request{};
  request.kind = kind;
  request.address = address;
  request.bytes = bytes;
  const silicon_answer answer = ask(request);
  if (answer.kind == SILICON_FAILED) {
    std::fprintf(stderr, "fake driver: the device refused code: %s\n", answer.message);
  }
  return answer.kind == SILICON_DONE ? answer.handle : 0;
}

Code ChipProcess::launch(silicon_request& request, const std::atomic<int>& stop) {
  const bool is_core = request.kind == SILICON_AICORE;
  const silicon_answer answer = ask(request);
  if (answer.kind == SILICON_FAILED) {
    std::fprintf(stderr, "fake driver: the device refused a launch: %s\n", answer.message);
    return is_core ? kAicException : kAicpuException;
  }
  std::unique_lock lock(mutex_);
  const auto has_ended = [&] { return is_gone_ || ends_.contains(request.tag) || stop != 0; };
  while (!changed_.wait_for(lock, kStopPeriod, has_ended)) {
  }
  return code_of(request.tag, is_core);
}

// With the mutex: the code of a launch that has ended, or that the driver has given up.
Code ChipProcess::code_of(uint64_t tag, bool is_core) const {
  const auto end = ends_.find(tag);
  if (end == ends_.end()) {
    if (!is_gone_) return 0;
    return has_crashed_ ? kCascade : kLost;
  }
  if (end->second.kind == SILICON_CRASHED) return exception_at(end->second.place);
  if (end->second.result == 0) return 0;
  return is_core ? kAicException : kAicpuException;
}

uint64_t ChipProcess::library(const std::string& file) const {
  const std::lock_guard lock(mutex_);
  const auto found = libraries_.find(file);
  return found == libraries_.end() ? 0 : found->second;
}

void ChipProcess::keep_library(const std::string& file, uint64_t handle) {
  const std::lock_guard lock(mutex_);
  libraries_[file] = handle;
}

void ChipProcess::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  wait_for_exit();
}

// A sanitizer in the device process reports through the exit code.
void ChipProcess::wait_for_exit() {
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) return;
  std::fprintf(stderr, "fake driver: the device process ended with code %d\n", WEXITSTATUS(status));
  std::abort();
}

}  // namespace pto::fake
