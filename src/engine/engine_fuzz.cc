// A whole engine against an authenticated peer that says anything, in both roles, while an honest peer works beside it.
// The input is a list of operations: frames of every kind with ids and lengths of the fuzzer's choice, data packets,
// raw bytes under a valid seal, datagrams without one, time, and the honest peer's calls, small and large. Whatever it
// says: nothing crashes, nothing grows past its bound, nothing is left at the end, and the honest peer's calls
// complete, each exactly once.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "engine/fuzz_input.h"
#include "engine/identities_testing.h"
#include "engine/large_testing.h"

namespace {

using namespace weir;          // NOLINT: a fuzz target of one namespace
using namespace weir::engine;  // NOLINT
using testing::Datagram;
using testing::Frames;
using testing::Input;
using testing::Net;
using testing::Puppet;
using testing::TestCall;
using wire::FrameType;

constexpr std::size_t kMaxOperations = 256;
constexpr std::size_t kMaxHonestCalls = 16;
constexpr std::size_t kLargeBytes = 100'000;
constexpr std::uint64_t kMostLargeBytes = 1u << 20;  // of requests, and of replies
constexpr auto kDeadline = std::chrono::seconds(20);

class Match {
 public:
  Match(bool hostile_initiates, bool has_identities, bool opens_arrivals)
      : hostile_initiates_(hostile_initiates), has_identities_(has_identities) {
    EngineConfig victim = testing::test_config(hostile_initiates, 1);
    victim.limits.request_bytes = 1 << 20;
    victim.limits.request_bytes_per_peer = 256 * 1024;
    victim.limits.calls_per_peer = 64;
    victim.limits.message_bytes = 256 * 1024;
    victim.limits.large_request_bytes = victim.limits.large_reply_bytes = kMostLargeBytes;
    victim.limits.nested_large_request_bytes = victim.limits.large_bytes_per_peer = kMostLargeBytes / 2;
    victim.memory = &victims_memory_;
    victim.opens_arrivals = opens_arrivals;
    victim.ahead_bytes = 1;  // no more than two of a kind at a time
    victim_ = add(victim);
    for (int* other : {&honest_, &hostile_}) {
      EngineConfig config =
          testing::test_config(!hostile_initiates, static_cast<std::uint16_t>(2 + (other == &hostile_)));
      config.memory = &memory_;
      *other = add(config);
    }
    for (const int host : {victim_, honest_, hostile_}) {
      net_.serve_echo(host);
      net_.serve(host, "measure", [](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
        buffer::Landing* const landing = request.landing();
        const bool well = landing != nullptr && buffer::open_all(*landing);
        const std::string answer = well ? describe(landing->whole()) : "nothing";
        engine.reply(request, {}, as_bytes(answer), now);
      });
      net_.serve(host, "fetch", [this](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
        engine.reply_large(request, seal(std::string(kLargeBytes, 'f')), {.bytes = kLargeBytes}, Pattern::unary, {},
                           now);
      });
      net_.serve(host, "hold", [this, host](Engine&, transfer::IncomingTransfer& request, Instant) {
        if (host == victim_) held_.push_back(&request);
      });
    }
    serve_routes();
    // A path with each, so that there are keys to seal with.
    honest_call("echo", "hello");
    TestCall first;
    call(hostile_, first, "echo", "hello", kDeadline);
    WEIR_CHECK(net_.run_until([&] { return first.completions != 0 && honest_calls_.back().completions != 0; }),
               "calls");
    if (!hostile_initiates) {
      for (std::size_t i = 0; i < 4; ++i) call(hostile_, pending_[i], "hold", std::string(40, 'x'), kDeadline);
    }
    net_.run_for(std::chrono::milliseconds(5));
    puppet_ = std::make_unique<Puppet>(net_, hostile_, victim_);
    victims_id_ = puppet_->path().remote_id;
    hostile_address_ = net_.address(hostile_);
    // Now that nobody grants anything by itself.
    for (std::size_t i = 4; i < 6 && !hostile_initiates; ++i) {
      pending_[i].is_large = true;
      call(hostile_, pending_[i], "hold", std::string(kLargeBytes, 'x'), kDeadline);
    }
    net_.turn(victim_);
  }

  void run(Input input) {
    for (std::size_t i = 0; i < kMaxOperations && !input.empty(); ++i) {
      operate(input);
      check_bounds();
    }
    finish();
  }

 private:
  // "route" sends large requests wherever the length of their header says; "put" takes records one by one.
  void serve_routes() {
    Engine& engine = net_.engine(victim_);
    Handler put{.run = [](void* context, transfer::IncomingTransfer& request,
                          Instant now) { static_cast<Engine*>(context)->reply(request, {}, {}, now); },
                .context = &engine,
                .takes_records = true};
    Handler route = put;
    route.takes_records = false;
    route.admit = [](void*, const transfer::IncomingTransfer&, const Opening& opening) -> Result<Route> {
      constexpr std::string_view kRoutes[] = {"measure", "hold", "put", "nobody", "route"};
      const std::size_t choice = opening.header.size() % 8;
      const int node = static_cast<int>(opening.header.size() / 8) - 2;
      if (choice >= std::size(kRoutes)) return Route{.numa_node = node};
      return Route{.method = testing::method_id(kRoutes[choice]), .name = std::string(kRoutes[choice])};
    };
    WEIR_CHECK(engine.serve(testing::method_id("put"), "put", put), "put");
    WEIR_CHECK(engine.serve(testing::method_id("route"), "route", route), "route");
  }
  int add(const EngineConfig& config) { return has_identities_ ? identities_.add(net_, config) : net_.add(config); }
  void call(int peer, TestCall& one, std::string_view method, const std::string& body, Duration deadline) {
    const int from = hostile_initiates_ ? peer : victim_;
    const int to = hostile_initiates_ ? victim_ : peer;
    Engine& engine = net_.engine(from);
    const std::uint32_t number =
        has_identities_ ? identities_.connect(net_, from, to) : engine.connect(net_.address(to)).value();
    if (!one.is_large) return net_.call_peer(from, number, one, method, body, deadline);
    one.method = testing::method_id(method);
    one.peer = number;
    one.deadline = net_.now + deadline;
    one.block = transfer::load_cargo(engine.blocks(), seal(body), {.bytes = body.size()}, Pattern::unary, {});
    one.bytes = wire::kCargoBytes;
    engine.submit(one, net_.now);
  }
  buffer::Sealed* seal(const std::string& text) {
    crypto::KeyBytes key;
    net_.entropy.fill(key);
    return buffer::seal(memory_, as_bytes(text), key, buffer::thread_key(), buffer::kRecordBytes, buffer::kRecordBytes);
  }
  static std::string describe(ByteSpan bytes) {
    std::uint64_t sum = 0;
    for (const std::byte byte : bytes) sum = sum * 31 + static_cast<std::uint8_t>(byte);
    return std::to_string(bytes.size()) + " bytes, " + std::to_string(sum);
  }
  void honest_call(std::string_view method, const std::string& body) {
    if (honest_calls_.size() == kMaxHonestCalls) return;
    call(honest_, honest_calls_.emplace_back(), method, body, std::chrono::hours(1));
    bodies_.push_back(body);
  }
  void honest_large_call(std::size_t bytes, std::uint8_t seed) {
    if (honest_calls_.size() == kMaxHonestCalls) return;
    std::string text(bytes + 1, 0);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + seed);
    TestCall& one = honest_calls_.emplace_back();
    one.is_large = true;
    call(honest_, one, "measure", text, std::chrono::hours(1));
    bodies_.push_back(describe(as_bytes(text)));
  }
  // One that the hostile peer was granted, or any number.
  std::uint64_t region(Input& input) {
    const std::uint8_t which = input.byte();
    if (which >= 0xe0) return input.number();
    std::vector<std::uint64_t> known;
    if (Path* path = victims_path(); path != nullptr && path->large != nullptr) {
      net_.core(victim_).regions.for_each_of_path(path->large->regions,
                                                  [&](token::Region& one) { known.push_back(one.id); });
    }
    return known.empty() ? which : known[which % known.size()];
  }
  wire::CargoFrame cargo(Input& input) {
    const std::uint8_t shape = input.byte();
    wire::CargoFrame frame{.body_bytes = input.number() * 997, .record_bytes = 61'440};
    frame.payload_bytes = shape & 1 ? input.number() : frame.body_bytes;
    if (shape & 2) frame.first_record = input.number();
    if (shape & 4) frame.record_bytes = static_cast<std::uint32_t>(input.number() << 8);
    if (shape & 8) frame.region = region(input);
    frame.adopted = (shape & 16) != 0;
    frame.wants_token = (shape & 32) != 0;
    if (shape & 64) frame.pattern = static_cast<Pattern>(input.byte());
    return frame;
  }
  void send_data(const wire::SliceFrame& frame, ByteSpan slice) {
    if (frames_.bytes().size() > 2'000) flush();
    frames_.raw(testing::frame_of(frame));
    sent_ = testing::seal_data(*puppet_, frames_.bytes(), slice);
    net_.inject(victim_, hostile_address_, sent_);
    frames_ = {};
  }
  // It comes from elsewhere; says what belongs to a change of address; or to one that the victim knows of.
  void change_address(Input& input) {
    const std::uint8_t kind = input.byte();
    const Path* const path = victims_path();
    if (kind % 4 == 0) {
      flush();
      hostile_address_ = input.byte() % 2 == 0 ? net_.address(hostile_) : Address::v4(0x0c000001, input.byte());
    } else if (kind % 4 == 1 && path != nullptr && path->is_changing) {
      frames_.u64(FrameType::path_response, net_.core(victim_).changes.at(victims_id_).candidates[0].challenge);
    } else {
      frames_.u64(kind % 4 == 2 ? FrameType::path_challenge : FrameType::path_response, input.number());
    }
  }
  // All that a region has room for, as an honest sender would.
  void fill_region(std::uint64_t id) {
    const token::Region* const region = net_.core(victim_).regions.find(id);
    if (region == nullptr) return;
    const std::uint64_t bytes = std::min<std::uint64_t>(region->limit(), kMostLargeBytes);
    const std::uint32_t record_bytes = region->landing->record_bytes;
    const std::string text(record_bytes, 'c');
    for (std::uint64_t at = 0; at < bytes; at += record_bytes) {
      send_data({.region = id,
                 .record = static_cast<std::uint32_t>(at / record_bytes),
                 .tag = reinterpret_cast<const std::byte*>(text.data())},
                as_bytes(text).first(std::min<std::uint64_t>(record_bytes, bytes - at)));
    }
  }
  wire::TransferId id(Input& input) {
    return {static_cast<std::uint32_t>(input.number()) & (wire::kMaxSlots - 1), input.number() & wire::kMaxGeneration};
  }
  // A message part that need not make sense.
  void part(Input& input, bool request) {
    const wire::TransferId name = id(input);
    const auto total = static_cast<std::uint16_t>(input.number());
    const auto offset = static_cast<std::uint16_t>(input.number());
    const std::uint8_t flags = input.byte();
    std::string body = input.text(2'000);
    if (flags & 0x20) body.resize(static_cast<std::size_t>(flags & 0x1f) * 700, 'p');
    if (request) {
      frames_.request(name, flags & 0x40 ? "hold" : "echo", body, total, offset, flags & 7, flags >> 3 & 7);
    } else {
      frames_.reply(name, body, total, offset, (flags & 1) != 0);
    }
  }
  void flush() {
    if (frames_.empty()) return;
    sent_ = puppet_->seal(frames_.bytes());
    net_.inject(victim_, net_.address(hostile_), sent_);
    frames_ = {};
  }

  void operate(Input& input) {
    const Address stranger = Address::v4(0x0b000001, 7);
    switch (input.byte() % 34) {
      case 0:
      case 1:
        return part(input, true);
      case 2:
      case 3:
        return part(input, false);
      case 4: {
        const std::uint64_t last = input.number();
        frames_.ack(last - std::min(last, input.number()), last);
        return;
      }
      case 5:  // an acknowledgement that an honest peer would send
        if (Path* path = victims_path(); path != nullptr && path->next_number != 0)
          frames_.ack(0, path->next_number - 1);
        return;
      case 6: {
        const wire::TransferId name = id(input);
        frames_.cancel(name, input.byte(), input.word());
        return;
      }
      case 7:
        frames_.level(FrameType::credit, input.byte(), input.number());
        return;
      case 8:
        frames_.level(FrameType::blocked, input.byte(), input.number());
        return;
      case 9:
        frames_.u64(FrameType::probe, input.number());
        return;
      case 10:
        frames_.u64(FrameType::probe_response, input.number());
        return;
      case 11:
        frames_.u64(FrameType::flow_reset, id(input).packed());
        return;
      case 12:
        frames_.close(input.byte());
        return;
      case 13:
        frames_.path(static_cast<std::uint32_t>(input.number()));
        return;
      case 14:
        frames_.ping();
        return;
      case 15: {  // anything at all under a valid seal
        const std::string bytes = input.text(3'000);
        frames_.raw(as_bytes(bytes));
        return;
      }
      case 16:
        return flush();
      case 17:
        flush();
        net_.run_for(std::chrono::microseconds(1u << input.byte() % 24));
        return;
      case 18:
        honest_call("echo", std::string(std::min<std::size_t>(input.number(), 16'000), 'h'));
        return;
      case 19: {  // no seal; says what it likes about its type and path
        const std::string bytes = input.text(2'000);
        net_.inject(victim_, input.byte() & 1 ? stranger : net_.address(hostile_),
                    {as_bytes(bytes).begin(), as_bytes(bytes).end()});
        return;
      }
      case 20:  // the last packet again, changed or not
        if (!sent_.empty()) {
          Datagram again = sent_;
          const std::uint8_t change = input.byte();
          again[input.word() % again.size()] ^= static_cast<std::byte>(change);
          net_.inject(victim_, net_.address(hostile_), again);
        }
        return;
      case 21:
        puppet_->path().next_number += input.number() & 0xffff;
        return;
      case 22:
        puppet_->path().keys.rotate();
        return;
      case 23:
        return answer_held(input.byte());
      case 24: {
        const wire::TransferId name = id(input);
        const std::uint8_t flags = input.byte();
        const wire::CargoFrame described = cargo(input);
        const Datagram opening = testing::opening_of(described, std::string(input.byte(), 'h'));
        constexpr std::string_view kMethods[] = {"measure", "hold", "fetch", "echo"};
        const std::string_view method = flags & 32 ? "route" : flags & 64 ? "put" : kMethods[flags & 3];
        frames_.raw(testing::large_request(name, method, opening, flags >> 2 & 7));
        return;
      }
      case 25: {
        const wire::TransferId name = id(input);
        const bool failed = input.byte() == 1;
        frames_.raw(testing::large_reply(name, testing::opening_of(cargo(input)), failed));
        return;
      }
      case 26: {
        const wire::SliceFrame frame{.region = region(input),
                                     .record = static_cast<std::uint32_t>(input.number()),
                                     .offset = static_cast<std::uint16_t>(input.number() * 257)};
        return send_data(frame, as_bytes(std::string(input.word() % 61'441, 's')));
      }
      case 27:
        return fill_region(region(input));
      case 28: {
        const auto side = static_cast<wire::Side>(input.byte() % 4);
        const wire::TransferId name = id(input);
        frames_.raw(testing::frame_of(wire::GrantFrame{.side = side,
                                                       .id = name,
                                                       .region = input.number(),
                                                       .capacity = input.number() << 12,
                                                       .lifetime_ms = static_cast<std::uint32_t>(input.number() << 8),
                                                       .in_flight_bytes = static_cast<std::uint32_t>(input.number())}));
        return;
      }
      case 29: {
        const auto side = static_cast<wire::Side>(input.byte() % 4);
        const wire::TransferId name = id(input);
        frames_.raw(testing::frame_of(wire::RevokeFrame{.side = side, .id = name, .region = input.number()}));
        return;
      }
      case 30: {
        constexpr FrameType kTypes[] = {FrameType::request_regions, FrameType::transfer_ack,
                                        FrameType::region_exhausted, FrameType::range_ack};
        const FrameType type = kTypes[input.byte() & 3];
        const auto side = static_cast<wire::Side>(input.byte() % 3);
        if (type == FrameType::range_ack) {
          const wire::TransferId name = id(input);
          const std::uint64_t named = input.number();
          frames_.raw(testing::frame_of(
              wire::RangeAckFrame{.side = side, .id = name, .region = named, .bytes = input.number()}));
          return;
        }
        frames_.raw(testing::frame_of(type, {.side = side, .id = id(input)}));
        return;
      }
      case 32: {  // no seal, but well formed
        const bool is_strange = (input.byte() & 1) != 0;
        Datagram bytes = testing::greeting(input, victims_id_);
        net_.inject(victim_, is_strange ? stranger : net_.address(hostile_), std::move(bytes));
        return;
      }
      case 33:
        return change_address(input);
      default: {
        const std::size_t bytes = static_cast<std::size_t>(input.word()) * 2;
        return honest_large_call(bytes, input.byte());
      }
    }
  }
  void answer_held(std::size_t count) {
    for (; count > 0 && !held_.empty(); --count) {
      net_.engine(victim_).reply(*held_.front(), {}, as_bytes(std::string_view("held")), net_.now);
      held_.pop_front();
    }
  }
  Path* victims_path() { return net_.core(victim_).find_path(victims_id_); }

  void check_bounds() {
    net_.turn(victim_);
    net_.inbox(hostile_).clear();
    const Census census = net_.engine(victim_).census();
    const auto& ledger = net_.core(victim_).ledger;
    WEIR_CHECK(ledger.promised() <= ledger.options().capacity, "more is promised than there is");
    WEIR_CHECK(census.credit_used <= ledger.options().capacity + 2 * 5 * ledger.nested_allowance(), "credit grew");
    WEIR_CHECK(census.incoming <= 8'192 && census.reassemblies <= 1'024 && census.blocks <= 2'048, "memory grew");
    WEIR_CHECK(census.frames_in_flight <= 8'192 && census.packets_in_flight <= 1'024, "the sent frames grew");
    WEIR_CHECK(census.arrivals + census.writers <= 256 && census.regions <= 256, "large messages grew");
    WEIR_CHECK(census.large_bytes <= 2 * kMostLargeBytes + 4 * (kMostLargeBytes / 2), "large messages' bytes grew");
    WEIR_CHECK(victims_memory_.taken_bytes() <= census.large_bytes + census.large_bytes / 100 + 512 * 2'048,
               "large messages take more memory than is accounted for");
    WEIR_CHECK(census.paths <= 3 && census.peers <= 2, "paths grew");
  }

  void finish() {
    flush();
    net_.run_for(std::chrono::milliseconds(10));
    answer_held(held_.size());
    const auto honest_done = [&] {
      return std::all_of(honest_calls_.begin(), honest_calls_.end(),
                         [](TestCall& one) { return one.completions != 0; });
    };
    WEIR_CHECK(net_.run_until(honest_done, 20'000), "an honest call does not complete");
    for (std::size_t i = 0; i < honest_calls_.size(); ++i) {
      WEIR_CHECK(honest_calls_[i].completions == 1 && !honest_calls_[i].failed && honest_calls_[i].reply == bodies_[i],
                 "an honest call did not get its reply");
    }
    net_.run_for(std::chrono::hours(1));
    answer_held(held_.size());
    net_.run_for(std::chrono::hours(1));
    for (TestCall& pending : pending_) {
      WEIR_CHECK(hostile_initiates_ || pending.completions == 1, "a call to the hostile peer did not complete once");
    }
    const Census left = net_.engine(victim_).census();
    WEIR_CHECK(left.calls_queued + left.calls_sent + left.incoming + left.blocks + left.reassemblies == 0, "left over");
    WEIR_CHECK(left.writers + left.arrivals + left.regions + left.regions_leaked + left.large_bytes == 0,
               "left over of large messages");
    WEIR_CHECK(victims_memory_.taken_bytes() == 0, "memory of large messages left over");
    WEIR_CHECK(left.paths + left.credit_used + left.timers + left.frames_in_flight == 0, "left over of paths");
    WEIR_CHECK(net_.core(victim_).ledger.promised() == 0 && net_.core(victim_).reply_room_used == 0, "room left over");
  }

  bool hostile_initiates_;
  bool has_identities_;
  std::deque<TestCall> honest_calls_;  // outlive the engines that hold them
  std::deque<std::string> bodies_;
  TestCall pending_[6];  // the last two are large
  buffer::HeapMemory memory_{std::uint64_t{1} << 32};
  buffer::HeapMemory victims_memory_{std::uint64_t{1} << 32};
  std::deque<transfer::IncomingTransfer*> held_;
  testing::Identities identities_;
  Net net_;
  int victim_ = 0, honest_ = 0, hostile_ = 0;
  std::unique_ptr<Puppet> puppet_;
  std::uint32_t victims_id_ = 0;
  Address hostile_address_;  // where its packets come from
  Frames frames_;
  Datagram sent_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Match match((data[0] & 1) == 0, (data[0] & 2) != 0, (data[0] & 4) != 0);
  match.run(Input(data + 1, size - 1));
  return 0;
}
