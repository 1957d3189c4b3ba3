// A user names the options that matter and leaves out the rest; compiled with every warning about what is left out.
#include <weir/weir.h>

using namespace std::chrono_literals;

weir::Config config() { return {.workers = 2}; }
weir::Config config_with_both() { return {.listen = "127.0.0.1:0", .secret = "at least sixteen bytes"}; }
weir::Workers::Options workers() { return {.threads = 2}; }
weir::WorkerPlace place() { return {.core = 1}; }
weir::BufferPlan buffers() { return {.memory = weir::BufferMemory::pages}; }
weir::Limits limits() { return {.peers = 16}; }
weir::Timeouts timeouts() { return {.silence = 1s}; }
weir::PeerOptions peer() { return {.name = "db.example"}; }
weir::CallOptions call() { return {.deadline = 1s}; }
weir::AllocateOptions allocate() { return {.wait = false}; }
weir::Binding binding() { return {.length = 64}; }
weir::FileOptions file() { return {.create = true}; }
weir::BulkRequest bulk() { return {.bytes = 1}; }
weir::PutOptions put() { return {.sync = true}; }
weir::GetOptions get() { return {.bytes = 1}; }
weir::GetTarget target() { return {.path = "file"}; }
weir::BroadcastOptions broadcast() { return {.quorum = 2}; }
