// How a pool comes to be: its memory, its posts, and in identity mode its handshaker.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "buffer/memory_plan.h"
#include "crypto/entropy.h"
#include "link/open.h"
#include "pool/pool_state.h"
#include "pool/validate.h"
#include "worker/clock.h"
#include "worker/place.h"

namespace weir::detail {
namespace {

constexpr std::uint64_t kUnbounded = std::uint64_t{1} << 62;

std::uint64_t random_word() {
  crypto::SystemEntropy entropy;
  std::uint64_t word = 0;
  entropy.fill(std::as_writable_bytes(std::span{&word, 1}));
  return word;
}

// Bounded by those who take of it: the pool's buffers, and the engines' ledgers of what arrives.
Result<std::shared_ptr<buffer::Memory>> build_memory(const Config& config) {
  buffer::MemoryPlan plan{.kind = config.buffers.memory,
                          .bytes = kUnbounded,
                          .keep_bytes = config.buffers.keep_bytes,
                          .touch = config.buffers.touch,
                          .directory = config.buffers.directory};
  if (config.subscriber != nullptr) {
    plan.on_degraded = [subscriber = config.subscriber](std::string_view sentence) {
      subscriber->on(event::Degraded{{}, "huge pages", sentence});
    };
  }
  return buffer::build_memory(plan);
}

bool wants_portable_link(const Config& config) {
  const char* wanted = std::getenv("WEIR_LINK");
  return config.portable_link || (wanted != nullptr && std::string_view(wanted) == "portable");
}

}  // namespace

Result<std::shared_ptr<PoolState>> PoolState::open(Config config) {
  if (Result<void> valid = pool::validate(config); !valid) return std::unexpected(valid.error());
  std::shared_ptr<worker::Crew> crew;
  const bool owns_crew = config.on == nullptr;
  if (!owns_crew) {
    crew = config.on->state()->crew;
    if (crew->is_in_child()) return std::unexpected(Error(Code::closed, kForked));
  } else {
    auto made = worker::Crew::open({.threads = config.workers,
                                    .places = config.places,
                                    .idle = config.idle,
                                    .watchdog = config.watchdog,
                                    .on_hang = config.on_hang,
                                    .subscriber = config.subscriber});
    if (!made) return std::unexpected(made.error());
    crew = *made;
  }
  config.on = nullptr;  // the handle may not outlive this call
  if (config.name.empty())
    config.name = "weir-" + std::to_string(getpid()) + "-" + std::to_string(random_word() % 100'000);
  Result<std::shared_ptr<buffer::Memory>> memory = build_memory(config);
  if (!memory) return std::unexpected(std::move(memory).error());
  const std::shared_ptr<PoolState> state(
      new PoolState(std::move(config), std::move(crew), owns_crew, *std::move(memory)), [](PoolState* last) {
        if (last->is_in_child()) {
          last->close_in_child();
          return keep_for_ever(last);
        }
        delete last;
      });
  if (Result<void> opened = state->open_posts(); !opened) return std::unexpected(opened.error());
  return state;
}

Result<void> PoolState::open_posts() {
  Address bind = Address::v4(0, 0);
  if (!config_.listen.empty()) {
    Result<Address> listen = Address::parse(config_.listen);
    if (!listen) return std::unexpected(listen.error());
    bind = *listen;
  }
  if (config_.nic_bits_per_s != 0) {
    auto joined = pool::join_nic(config_.nic.empty() ? pool::interface_of(bind) : config_.nic, config_.nic_bits_per_s,
                                 worker::read_clock());
    if (!joined) return std::unexpected(joined.error());
    nic_ = *std::move(joined);
  }
  return config_.identity.is_set() ? open_with_identity(bind) : open_with_secret(bind);
}

Result<void> PoolState::open_with_secret(Address bind) {
  Result<crypto::SharedSecret> secret = crypto::SharedSecret::from_text(config_.secret);
  if (!secret) return std::unexpected(secret.error());
  const engine::EngineConfig engine{.secret = *secret, .name = config_.name, .accepts = !config_.listen.empty()};
  // All workers of a listening pool share one port; a pool that only calls has one port for each.
  const bool shares_port = !config_.listen.empty() && crew_->size() > 1;
  if (!shares_port) {
    for (std::size_t i = 0; i < crew_->size(); ++i) {
      if (Result<void> opened = open_post(i, bind, engine); !opened) return opened;
    }
    return {};
  }
  if (Result<void> opened = open_shared_posts(bind, engine); !opened) return opened;
  // Of sockets that share a port, the kernel picks the receiver by the sender's address: a reply could reach a worker
  // that did not make the call. Calls therefore leave from ports of their own.
  first_caller_ = posts_.size();
  bind.port = 0;
  engine::EngineConfig caller = engine;
  caller.accepts = false;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    if (Result<void> opened = open_post(i, bind, caller); !opened) return opened;
  }
  return {};
}

// Every socket is bound before any of them is read: a caller whose hello and FIRST packet reach different sockets,
// since there was another one meanwhile, is served all the same, but costs a copy for each of its packets.
Result<void> PoolState::open_shared_posts(Address& bind, engine::EngineConfig engine) {
  std::vector<OpenedLink> links;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    Result<OpenedLink> opened = open_link(bind, true);
    if (!opened) return std::unexpected(opened.error());
    bind = opened->link->local();
    links.push_back(*std::move(opened));
  }
  // To a caller they are one process: a hello that another worker answers is no restart.
  crypto::SystemEntropy{}.fill(engine.incarnation);
  crypto::SystemEntropy{}.fill(engine.cookie);
  forwarding_ = std::make_shared<pool::Forwarding>(links.size(), random_word());
  engine.siblings = forwarding_.get();
  engine.workers_at_port = static_cast<std::uint32_t>(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    forwarding_->set_gate(i, add_post(i, std::move(links[i]), engine).gate());
  }
  for (const auto& post : posts_) {
    if (!post->join(worker::read_clock() + kOwnerPatience)) {
      return std::unexpected(Error(Code::timeout, kOwnerDoesNotPoll));
    }
  }
  return {};
}

// The address to listen at is for handshakes; they tell peers where each worker receives.
Result<void> PoolState::open_with_identity(Address bind) {
  Result<std::unique_ptr<handshake::IdentitySource>> identity =
      handshake::IdentitySource::open(config_.identity, handshake::wall_clock_seconds());
  if (!identity) return std::unexpected(identity.error());
  auto buffers = std::make_unique<link::ReceiveBufferPool>(
      link::ReceiveBufferPool::Options{.max_buffers = 2 * link::kReceiveBuffers});
  Result<std::unique_ptr<link::Link>> link = link::open_udp(
      {.bind = bind, .kind = wants_portable_link(config_) ? link::Kind::portable : link::Kind::automatic}, *buffers);
  if (!link) return std::unexpected(link.error());
  const bool accepts = !config_.listen.empty();
  auto worker = crew_->handshake_worker();
  if (!worker) return std::unexpected(worker.error());
  handshaker_ = std::make_shared<pool::Handshaker>(pool::Handshaker::Options{.identity = std::move(*identity),
                                                                             .buffers = std::move(buffers),
                                                                             .link = std::move(*link),
                                                                             .worker = *worker,
                                                                             .has_own_thread = crew_->has_threads(),
                                                                             .subscriber = config_.subscriber,
                                                                             .accepts = accepts,
                                                                             .limits = config_.limits,
                                                                             .timeouts = config_.timeouts,
                                                                             .seed = random_word()});
  engine::EngineConfig engine{.credentials = handshaker_.get(),
                              .signer = handshaker_->signer(),
                              .incarnation = handshaker_->incarnation(),
                              .name = handshaker_->name().substr(0, engine::kMaxNameBytes),
                              .accepts = accepts};
  handshake::Offer self{.mtu = static_cast<std::uint32_t>(config_.datagram_bytes)};
  bind.port = 0;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    if (config_.data_port != 0) bind.port = static_cast<std::uint16_t>(config_.data_port + i);
    if (Result<void> opened = open_post(i, bind, engine); !opened) return opened;
    self.workers.push_back({.worker = static_cast<std::uint16_t>(i), .port = posts_.back()->local().port});
  }
  if (Result<void> opened = handshaker_->open(self); !opened) return opened;
  if (handshaker_->join(worker::read_clock() + kOwnerPatience)) return {};
  return std::unexpected(Error(
      Code::timeout, crew_->has_threads() ? "the handshake thread of these workers is busy: does a function given "
                                            "to Identity::authorise() block?"
                                          : kOwnerDoesNotPoll));
}

Result<PoolState::OpenedLink> PoolState::open_link(const Address& bind, bool shares_port) {
  auto buffers = std::make_unique<link::ReceiveBufferPool>(
      link::ReceiveBufferPool::Options{.max_buffers = config_.limits.receive_buffers});
  Result<std::unique_ptr<link::Link>> opened =
      link::open_udp({.bind = bind,
                      .kind = wants_portable_link(config_) ? link::Kind::portable : link::Kind::automatic,
                      .receive_buffer_bytes = config_.socket_buffer_bytes,
                      .send_buffer_bytes = config_.socket_buffer_bytes,
                      .force_buffers = true,
                      .reuse_port = shares_port},
                     *buffers);
  if (!opened) return std::unexpected(opened.error());
  return OpenedLink{std::move(buffers), *std::move(opened)};
}

pool::Post& PoolState::add_post(std::size_t index, OpenedLink opened, engine::EngineConfig engine) {
  const link::LinkReport report = opened.link->report();
  engine.worker = static_cast<std::uint16_t>(index);
  engine.port = opened.link->local().port;
  engine.openssl_aead = config_.openssl_aead;
  engine.datagram_bytes = config_.datagram_bytes;
  engine.receive_buffer_bytes = report.receive_buffer_bytes;
  if (nic_ != nullptr) engine.nic = nic_->shaper;
  engine.payloads_are_short = [buffers = buffers_] { return buffers->used_bytes() > buffers->bound_bytes() / 2; };
  if (index < config_.places.size()) engine.numa_node = worker::node_of(config_.places[index]);
  engine.limits = config_.limits;
  engine.timeouts = config_.timeouts;
  const bool shares_port = engine.siblings != nullptr;
  auto& post = *posts_.emplace_back(
      std::make_shared<pool::Post>(pool::Post::Options{.engine = engine,
                                                       .payloads = buffers_,
                                                       .arrivals = arrivals_,
                                                       .worker = crew_->worker(index),
                                                       .buffers = std::move(opened.buffers),
                                                       .link = std::move(opened.link),
                                                       .subscriber = config_.subscriber,
                                                       .executor = executor_,
                                                       .handshaker = handshaker_,
                                                       .forwarding = shares_port ? forwarding_ : nullptr,
                                                       .seed = random_word(),
                                                       .sends_exception_text = config_.send_exception_text}));
  report_clamped_buffers(post, report);
  return post;
}

Result<void> PoolState::open_post(std::size_t index, const Address& bind, const engine::EngineConfig& engine) {
  Result<OpenedLink> opened = open_link(bind, false);
  if (!opened) return std::unexpected(opened.error());
  if (add_post(index, *std::move(opened), engine).join(worker::read_clock() + kOwnerPatience)) return {};
  return std::unexpected(Error(Code::timeout, kOwnerDoesNotPoll));
}

void PoolState::report_clamped_buffers(pool::Post& post, const link::LinkReport& report) {
  if (!report.receive_buffer_clamped && !report.send_buffer_clamped) return;
  const std::string asked = std::to_string(report.receive_buffer_asked_bytes);
  clamped_buffers_ = "the kernel gave a receive buffer of " + std::to_string(report.receive_buffer_bytes) +
                     " and a send buffer of " + std::to_string(report.send_buffer_bytes) + " bytes instead of " +
                     asked + ": sysctl -w net.core.rmem_max=" + asked + " net.core.wmem_max=" + asked;
  post.engine().events().set_now(worker::read_clock());
  post.engine().events().emit(event::Degraded{{}, "socket buffers", clamped_buffers_});
}

}  // namespace weir::detail
