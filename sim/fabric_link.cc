#include "sim/fabric_link.h"

#include <algorithm>

namespace weir::sim {
namespace {

// The train's next datagram.
Segment first_of(const link::Train& train) {
  if (!train.segments.empty()) return train.segments.front();
  const std::size_t segment = train.segment_size == 0 ? train.bytes.size() : train.segment_size;
  return {.head = train.bytes.first(std::min(segment, train.bytes.size()))};
}

std::size_t bytes_of(const link::Train& train) {
  std::size_t sum = train.segments.empty() ? train.bytes.size() : 0;
  for (const Segment& segment : train.segments) sum += segment.size();
  return sum;
}

}  // namespace

std::size_t FabricLink::receive(std::vector<link::Datagram>& out) {
  std::size_t count = 0;
  while (out.size() < out.capacity()) {
    FabricPacket* const packet = fabric_.take(host_);
    if (packet == nullptr) break;
    taken_.push_back(packet);
    out.push_back({.bytes = {packet->data, packet->bytes},
                   .from = Fabric::address_of(packet->from),
                   .ecn = static_cast<link::Ecn>(packet->ecn),
                   .buffer = packet->buffer});
    ++count;
  }
  return count;
}

void FabricLink::recycle() {
  for (FabricPacket* packet : taken_) fabric_.release(packet);
  taken_.clear();
}

// False: the interface is full.
bool FabricLink::send_train(link::Train& train) {
  const HostId to = fabric_.host_of(train.to);
  while (!train.is_empty()) {
    const Segment next = first_of(train);
    const auto size = static_cast<std::uint32_t>(next.size());
    const Instant room_at = fabric_.room_at(host_, size);
    if (room_at > fabric_.now()) {
      writable_at_ = room_at;
      return false;
    }
    fabric_.transmit(host_, to, static_cast<std::uint8_t>(train.ecn), next.head, next.body);
    sent_sizes_.push_back(size);
    if (train.segments.empty()) {
      train.bytes = train.bytes.subspan(next.size());
    } else {
      train.segments = train.segments.subspan(1);
    }
  }
  return true;
}

std::size_t FabricLink::send(std::span<link::Train> trains, std::span<link::SendStatus> statuses) {
  writable_at_ = Instant::never();
  for (std::size_t i = 0; i < trains.size(); ++i) {
    link::Train& train = trains[i];
    statuses[i] = link::SendStatus::sent;
    if (first_of(train).size() > fabric_.shape().datagram_bytes()) {
      statuses[i] = link::SendStatus::too_big;
      continue;
    }
    largest_train_bytes_ = std::max(largest_train_bytes_, static_cast<std::uint32_t>(bytes_of(train)));
    if (!send_train(train)) {
      statuses[i] = link::SendStatus::would_block;
      return i;
    }
  }
  return trains.size();
}

void FabricLink::count_control(std::uint64_t packets) {
  if (packets != 0 && !sent_sizes_.empty()) {
    const std::size_t count = std::min<std::size_t>(packets, sent_sizes_.size());
    std::ranges::nth_element(sent_sizes_, sent_sizes_.begin() + static_cast<std::ptrdiff_t>(count - 1));
    for (std::size_t i = 0; i < count; ++i) control_ip_bytes_ += sent_sizes_[i] + FabricShape::kIpBytes;
  }
  sent_sizes_.clear();
}

void FabricLink::start_counting() {
  largest_train_bytes_ = 0;
  control_ip_bytes_ = 0;
  sent_sizes_.clear();
}

link::LinkReport FabricLink::report() const {
  link::LinkReport report;
  report.kind = "fabric";
  report.receive_buffer_asked_bytes = report.receive_buffer_bytes = receive_buffer_bytes_;
  report.send_buffer_asked_bytes = report.send_buffer_bytes = fabric_.shape().nic_bytes;
  report.segmentation_offload = true;
  report.receive_offload = true;
  report.ecn_send = true;
  report.ecn_receive = true;
  report.max_datagram_bytes = fabric_.shape().datagram_bytes();
  return report;
}

}  // namespace weir::sim
