#include "sim/link.h"

#include <algorithm>
#include <utility>

namespace weir::sim {
namespace {

// The train's next datagram.
Segment first_of(const link::Train& train) {
  if (!train.segments.empty()) return train.segments.front();
  const std::size_t segment = train.segment_size == 0 ? train.bytes.size() : train.segment_size;
  return {.head = train.bytes.first(std::min(segment, train.bytes.size()))};
}

}  // namespace

SimLink::SimLink(Network& network, EventQueue& queue, HostId host, const Address& local, const Options& options,
                 std::function<void()> on_arrival, bool is_alone)
    : network_(network),
      queue_(queue),
      host_(host),
      local_(local),
      options_(options),
      on_arrival_(std::move(on_arrival)),
      is_alone_(is_alone),
      pool_({.max_buffers = options.max_buffers, .touched_buffers = 0}) {
  if (is_alone_) network_.plug(local_, this);
}

SimLink::~SimLink() {
  if (is_alone_) network_.plug(local_, nullptr);
  recycle();
}

// Datagrams are packed into buffers one after the other, as a kernel that coalesces them does.
std::size_t SimLink::receive(std::vector<link::Datagram>& out) {
  std::size_t count = 0;
  for (std::size_t used = 0; used < link::kReceiveBuffers && !inbox_.empty(); ++used) {
    if (out.capacity() - out.size() < link::kDatagramsPerBuffer) break;
    link::ReceiveBuffer* buffer = pool_.acquire();
    if (buffer == nullptr) {
      ++starved_;
      break;
    }
    lent_.push_back(buffer);
    MutableByteSpan room = buffer->bytes();
    for (std::size_t i = 0; i < link::kDatagramsPerBuffer && !inbox_.empty(); ++i) {
      const Packet& packet = inbox_.front();
      if (packet.bytes.size() > room.size()) break;
      std::ranges::copy(packet.bytes, room.begin());
      out.push_back({.bytes = room.first(packet.bytes.size()),
                     .from = packet.source,
                     .ecn = static_cast<link::Ecn>(packet.ecn),
                     .buffer = buffer});
      room = room.subspan(packet.bytes.size());
      inbox_bytes_ -= packet.bytes.size() + options_.datagram_overhead_bytes;
      inbox_.pop_front();
      ++count;
    }
  }
  return count;
}

void SimLink::recycle() {
  for (link::ReceiveBuffer* buffer : lent_) buffer->release_ref();
  lent_.clear();
}

std::size_t SimLink::send(std::span<link::Train> trains, std::span<link::SendStatus> statuses) {
  writable_at_ = Instant::never();
  for (std::size_t i = 0; i < trains.size(); ++i) {
    link::Train& train = trains[i];
    statuses[i] = link::SendStatus::sent;
    if (first_of(train).size() > network_.shape_of(host_).datagram_bytes) {
      statuses[i] = link::SendStatus::too_big;
      continue;
    }
    while (!train.is_empty()) {
      const Segment next = first_of(train);
      const Instant room_at = network_.room_at(host_, next.size());
      if (options_.blocks && room_at > queue_.now()) {
        statuses[i] = link::SendStatus::would_block;
        writable_at_ = room_at;
        return i;
      }
      std::vector<std::byte> bytes{next.head.begin(), next.head.end()};
      bytes.insert(bytes.end(), next.body.begin(), next.body.end());
      network_.transmit(host_, {.source = local(),
                                .destination = train.to,
                                .ecn = static_cast<std::uint8_t>(train.ecn),
                                .bytes = std::move(bytes)});
      if (train.segments.empty()) {
        train.bytes = train.bytes.subspan(next.size());
      } else {
        train.segments = train.segments.subspan(1);
      }
    }
  }
  return trains.size();
}

bool SimLink::take_unreachable(link::Unreachable& out) {
  if (unreachable_.empty()) return false;
  out = unreachable_.front();
  unreachable_.pop_front();
  return true;
}

link::LinkReport SimLink::report() const {
  link::LinkReport report;
  report.kind = "simulated";
  report.receive_buffer_asked_bytes = report.receive_buffer_bytes = options_.receive_buffer_bytes;
  report.send_buffer_asked_bytes = report.send_buffer_bytes = network_.shape_of(host_).queue_bytes;
  report.segmentation_offload = true;
  report.receive_offload = true;
  report.ecn_send = true;
  report.ecn_receive = true;
  report.unreachable_reports = true;
  report.max_datagram_bytes = network_.shape_of(host_).datagram_bytes;
  report.starved_receives = starved_;
  return report;
}

void SimLink::arrive(const Packet& packet) {
  const std::size_t taken = packet.bytes.size() + options_.datagram_overhead_bytes;
  if (packet.bytes.size() > kMaxDatagramBytes || inbox_bytes_ + taken > options_.receive_buffer_bytes) {
    ++dropped_;
    return;
  }
  inbox_bytes_ += taken;
  inbox_.push_back(packet);
  on_arrival_();
}

void SimLink::arrive_unreachable(const Address& who, ByteSpan quoted) {
  if (unreachable_.size() >= kMaxUnreachable) return;
  link::Unreachable report;
  report.who = who;
  report.port_closed = true;
  report.quoted_size = static_cast<std::uint8_t>(std::min(quoted.size(), link::Unreachable::kMaxQuoted));
  std::ranges::copy(quoted.first(report.quoted_size), report.quoted.begin());
  unreachable_.push_back(report);
  on_arrival_();
}

}  // namespace weir::sim
