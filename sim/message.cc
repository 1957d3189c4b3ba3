#include "sim/message.h"

#include <algorithm>
#include <cstring>

#include "buffer/open.h"
#include "sim/journal.h"

namespace weir::sim {
namespace {

// Bytes that depend on the id and their place, and on nothing else.
class Filler {
 public:
  explicit Filler(std::uint64_t id) : state_(id * 0x9e3779b97f4a7c15ULL + 1) {}

  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  std::uint64_t state_;
};

// The marker, then as many bytes that depend on the id.
constexpr std::size_t kStretchBytes = 512;

void fill(MutableByteSpan out, std::uint64_t id) {
  Filler filler(id);
  for (std::size_t at = 0; at < out.size(); at += kStretchBytes) {
    MutableByteSpan rest = out.subspan(at).first(std::min(kStretchBytes, out.size() - at));
    const std::size_t marked = std::min(kPlaintextMarker.size(), rest.size());
    std::memcpy(rest.data(), kPlaintextMarker.data(), marked);
    rest = rest.subspan(marked);
    while (!rest.empty()) {
      const std::uint64_t word = filler.next();
      const std::size_t bytes = std::min(sizeof word, rest.size());
      std::memcpy(rest.data(), &word, bytes);
      rest = rest.subspan(bytes);
    }
  }
}

bool is_filled(ByteSpan bytes, std::uint64_t id) {
  Filler filler(id);
  for (std::size_t at = 0; at < bytes.size(); at += kStretchBytes) {
    ByteSpan rest = bytes.subspan(at).first(std::min(kStretchBytes, bytes.size() - at));
    const std::size_t marked = std::min(kPlaintextMarker.size(), rest.size());
    if (std::memcmp(rest.data(), kPlaintextMarker.data(), marked) != 0) return false;
    rest = rest.subspan(marked);
    while (!rest.empty()) {
      const std::uint64_t word = filler.next();
      const std::size_t count = std::min(sizeof word, rest.size());
      if (std::memcmp(rest.data(), &word, count) != 0) return false;
      rest = rest.subspan(count);
    }
  }
  return true;
}

constexpr std::size_t kChecked = Instruction::kBytes - 8;  // the last eight bytes are their checksum

// Requests and replies of one id are filled differently, so that neither passes for the other.
std::uint64_t reply_filler(std::uint64_t id) { return ~id; }

std::uint64_t proof_of(const Instruction& instruction) {
  std::byte front[Instruction::kBytes];
  write_request(front, instruction);
  return hash_of(front);
}

}  // namespace

void disguise(MutableByteSpan body) {
  for (std::byte& byte : body) byte ^= std::byte{0x5a};
}

bool open_body(buffer::Landing& landing) {
  if (!buffer::open_all(landing)) return false;
  if (landing.adopted) disguise({landing.body, landing.bytes});
  return true;
}

void write_request(MutableByteSpan out, const Instruction& instruction) {
  std::byte* to = out.data();
  store(to, instruction.id);
  store(to + 8, static_cast<std::uint8_t>(instruction.answer));
  store(to + 9, static_cast<std::uint8_t>(instruction.keeps_request));
  store(to + 10, instruction.depth);
  store(to + 11, instruction.priority);
  store(to + 12, instruction.nested_host);
  store(to + 16, instruction.delay_us);
  store(to + 20, instruction.bytes);
  store(to + 24, instruction.header_bytes);
  store(to + 28, instruction.reply_bytes);
  store(to + 32, hash_of(out.first(kChecked)));
  fill(out.subspan(Instruction::kBytes), instruction.id);  // nothing, where only the front is wanted
}

std::optional<Instruction> read_request(ByteSpan request) {
  if (request.size() < Instruction::kBytes) return std::nullopt;
  const std::byte* from = request.data();
  if (load<std::uint64_t>(from + 32) != hash_of(request.first(kChecked))) return std::nullopt;
  Instruction instruction;
  instruction.id = load<std::uint64_t>(from);
  instruction.answer = static_cast<Answer>(load<std::uint8_t>(from + 8));
  instruction.keeps_request = load<std::uint8_t>(from + 9) != 0;
  instruction.depth = load<std::uint8_t>(from + 10);
  instruction.priority = load<std::uint8_t>(from + 11);
  instruction.nested_host = load<std::uint32_t>(from + 12);
  instruction.delay_us = load<std::uint32_t>(from + 16);
  instruction.bytes = load<std::uint32_t>(from + 20);
  instruction.header_bytes = load<std::uint32_t>(from + 24);
  instruction.reply_bytes = load<std::uint32_t>(from + 28);
  if (instruction.bytes != request.size()) return std::nullopt;
  if (!is_filled(request.subspan(Instruction::kBytes), instruction.id)) return std::nullopt;
  return instruction;
}

void write_reply(MutableByteSpan out, const Instruction& instruction) {
  store(out.data(), instruction.id);
  store(out.data() + 8, proof_of(instruction));
  fill(out.subspan(kReplyBytes), reply_filler(instruction.id));
}

std::size_t reply_header_bytes(const Instruction& instruction) {
  return std::min<std::size_t>(instruction.id % 3 == 0 ? instruction.id % 97 : 0, instruction.reply_bytes);
}

bool is_reply_to(ByteSpan reply, std::size_t header_bytes, const Instruction& instruction) {
  if (reply.size() != instruction.reply_bytes || header_bytes != reply_header_bytes(instruction)) return false;
  if (load<std::uint64_t>(reply.data()) != instruction.id) return false;
  if (load<std::uint64_t>(reply.data() + 8) != proof_of(instruction)) return false;
  return is_filled(reply.subspan(kReplyBytes), reply_filler(instruction.id));
}

}  // namespace weir::sim
