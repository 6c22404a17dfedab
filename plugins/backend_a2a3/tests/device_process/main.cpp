// The device process: the program that plays the silicon. protocol.h describes its arguments.
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "device_process/silicon.hpp"

// A report of the thread sanitizer ends the process, so that the driver sees it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "halt_on_error=1";
}

namespace silicon {
namespace {

int crash_socket = -1;

extern "C" void on_crash(int number, siginfo_t*, void*) {
  silicon_answer answer{};
  answer.kind = SILICON_CRASHED;
  answer.tag = place.tag;
  answer.signal = static_cast<uint32_t>(number);
  answer.place = place.kind;
  answer.physical = place.physical;
  if (place.kind != 0) send(crash_socket, &answer, sizeof answer, MSG_NOSIGNAL);
  raise(number);  // its handler was reset
}

}  // namespace

void report_crashes(int socket) {
  crash_socket = socket;
  struct sigaction action{};
  action.sa_handler = nullptr;
  action.sa_sigaction = on_crash;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_NODEFER);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    sigaction(number, &action, nullptr);
  }
}

long Link::receive(silicon_request& request, int& descriptor) const {
  iovec bytes{&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  descriptor = -1;
  long count;
  do {
    count = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  const cmsghdr* header = count > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr) std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return count;
}

void Link::send_bytes(const void* bytes, size_t count) const {
  if (::send(socket_, bytes, count, MSG_NOSIGNAL) < 0) _exit(0);  // the driver has gone
}

}  // namespace silicon

int main(int argc, char** argv) {
  silicon::Settings settings;
  settings.socket = argc > 1 ? std::atoi(argv[1]) : -1;
  for (int i = 2; i < argc; ++i) {
    const char* value = std::strchr(argv[i], '=');
    const std::string key(argv[i], value != nullptr ? value - argv[i] : 0);
    const auto number = static_cast<uint32_t>(value != nullptr ? std::atoi(value + 1) : 0);
    if (key == "folder" && value != nullptr) {
      silicon::folder = value + 1;
    } else if (key == "log" && value != nullptr) {
      silicon::log_path = value + 1;
    } else if (key == "blocks" && number >= 1 && number <= PTO_MAX_BLOCKS) {
      settings.blocks = number;
    } else if (key == "plain") {
      silicon::has_plain_registers = number != 0;
    } else if (key == "seed") {
      settings.seed = number;
    } else if (key == "duplicates") {
      settings.has_duplicates = number != 0;
    } else if (key == "dead_core") {
      settings.dead_core = number;
    } else if (key == "dead_threads") {
      settings.dead_threads = number;
    } else {
      std::fprintf(stderr, "device process: unknown setting %s\n", argv[i]);
      return 2;
    }
  }
  if (settings.socket < 0) {
    std::fprintf(stderr, "usage: device_process FD [SETTING=N ...]; protocol.h has the settings\n");
    return 2;
  }
  silicon::Chip(settings).serve();
  return 0;
}
