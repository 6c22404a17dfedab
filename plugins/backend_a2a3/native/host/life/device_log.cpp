#include "life/device_log.hpp"

#include <algorithm>
#include <string>

#include "pto/host/runtime_log.hpp"

namespace pto::a2a3 {

void DeviceLog::open(uint64_t address, bool is_json) {
  address_ = address;
  is_json_ = is_json;
  read_ = dropped_ = 0;
  ring_ = std::make_unique<pto_a2a3_log>();
}

uint64_t DeviceLog::read(CardMemory& memory) {
  constexpr size_t kHead = offsetof(pto_a2a3_log, entry);
  if (memory.copy_out(ring_.get(), address_, kHead, nullptr) != PTO_OK) return read_;
  const bool has_news = ring_->written != read_ || ring_->dropped != dropped_;
  if (has_news && memory.copy_out(ring_.get(), address_, sizeof *ring_, nullptr) == PTO_OK) show();
  return read_;
}

void DeviceLog::salvage(Session& session) {
  const auto lock = session.lock();
  if (session.salvage(ring_.get(), address_, sizeof *ring_)) show();
}

// An entry whose number differs is incomplete, and a later call shows it.
void DeviceLog::show() {
  for (; read_ < ring_->written; ++read_) {
    pto_a2a3_log_entry& entry = ring_->entry[read_ % PTO_A2A3_LOG_ENTRIES];
    if (entry.number != read_ + 1) break;
    entry.text[sizeof entry.text - 1] = '\0';
    host::write_log(std::clamp<int32_t>(entry.level, PTO_LOG_ALWAYS, PTO_LOG_DEBUG), entry.text,
                    is_json_);
  }
  if (ring_->dropped == dropped_) return;
  const std::string lost = std::to_string(ring_->dropped - dropped_) +
                           " messages of the device are lost, because its log was full";
  host::write_log(PTO_LOG_WARN, lost.c_str(), is_json_);
  dropped_ = ring_->dropped;
}

}  // namespace pto::a2a3
