#include "activity/activity.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "error.hpp"

namespace pto::sim {

ActivityPage::~ActivityPage() {
  if (page_ != nullptr) munmap(page_, sizeof *page_);
}

pto_status ActivityPage::open(int file, int32_t device, uint32_t slots, pto_error* error) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, sizeof *page_, PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) {
    return fail(error, PTO_ERROR_USAGE,
                "cannot map the activity page from descriptor %d (%s); pass a file of at least "
                "%zu bytes that is open for reading and writing",
                file, std::strerror(errno), sizeof *page_);
  }
  page_ = static_cast<pto_activity_page*>(memory);
  is_shared_ = file >= 0;
  note(page_->version, PTO_ABI_VERSION);
  note(page_->slots, slots);
  note(page_->device, device);
  note(page_->magic, PTO_ACTIVITY_MAGIC);
  return PTO_OK;
}

void ActivityPage::set_capabilities(uint32_t capabilities) const noexcept {
  note(page_->capabilities, capabilities);
}

}  // namespace pto::sim
