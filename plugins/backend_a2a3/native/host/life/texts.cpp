#include "life/texts.hpp"

#include "pto/host/runtime_log.hpp"

namespace pto::a2a3 {

pto_status KernelTexts::add(uint64_t kernel, const char* name, pto_error* error) {
  names_[kernel] = name;
  if (address_ != 0) return PTO_OK;
  constexpr size_t kBytes = PTO_MAX_CORES * sizeof(pto_a2a3_texts);
  const pto_status status = memory_.allocate(kBytes, &address_, error);
  return status == PTO_OK ? memory_.fill(address_, 0, kBytes, error) : status;
}

void KernelTexts::read() {
  if (address_ == 0) return;
  for (uint32_t core = 0; core < cores_; ++core) {
    Seen& seen = seen_[core];
    if (memory_.copy_out(copy_.get(), ring(core), PTO_A2A3_LINE, nullptr) != PTO_OK) return;
    if (copy_->written == seen.read && copy_->dropped == seen.dropped) continue;
    if (memory_.copy_out(copy_.get(), ring(core), sizeof *copy_, nullptr) != PTO_OK) return;
    show(core);
    const uint64_t read_at = ring(core) + offsetof(pto_a2a3_texts, read);
    memory_.copy_in(read_at, &seen.read, sizeof seen.read, nullptr);
  }
}

void KernelTexts::salvage() {
  if (address_ == 0) return;
  const auto lock = session_.lock();
  for (uint32_t core = 0; core < cores_; ++core) {
    if (!session_.salvage(copy_.get(), ring(core), sizeof *copy_)) return;
    show(core);
  }
}

// An entry whose number differs is incomplete, and a later call shows it.
void KernelTexts::show(uint32_t core) {
  Seen& seen = seen_[core];
  for (; seen.read < copy_->written; ++seen.read) {
    pto_a2a3_text& entry = copy_->entry[seen.read % PTO_A2A3_TEXTS];
    if (entry.number != seen.read + 1) break;
    entry.file[sizeof entry.file - 1] = entry.text[sizeof entry.text - 1] = '\0';
    const std::string& name = names_[entry.kernel];
    log_.print({name.c_str(), entry.task, core, entry.file, entry.line, entry.text});
  }
  if (copy_->dropped == seen.dropped) return;
  const std::string lost = std::to_string(copy_->dropped - seen.dropped) + " texts of kernels on " +
                           log_.type_of(core) + " " + std::to_string(log_.number_of(core)) +
                           " are lost, because the host did not read them in time";
  log_.warn(lost.c_str());
  seen.dropped = copy_->dropped;
}

}  // namespace pto::a2a3
