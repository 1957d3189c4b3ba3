"""What is compared: the peers, the cases, and what should come out."""


class Peer:
    """A program in bench/peers together with the options that make it one contestant."""

    def __init__(self, label, program, package, transport, server=(), client=(), both=()):
        self.label = label
        self.program = program
        self.package = package  # what to install if it was not built; None if it needs nothing
        self.transport = transport
        self.server_options = [*server, *both]
        self.client_options = [*client, *both]


PEERS = {
    # Neither server style is always the faster one, so the case with a goal against gRPC runs both.
    "grpc-tls": Peer("gRPC TLS, callback", "grpc_tls", "libgrpc++-dev", "tcp", server=["--style", "callback"]),
    "grpc-tls-async": Peer("gRPC TLS, async", "grpc_tls", "libgrpc++-dev", "tcp", server=["--style", "async"]),
    "zeromq": Peer("ZeroMQ tcp", "zeromq", "libzmq3-dev", "tcp"),
    "udp-spin": Peer("raw UDP, spinning", "udp_echo", None, "udp", both=["--mode", "spinning"]),
    "udp-block": Peer("raw UDP, blocking", "udp_echo", None, "udp", both=["--mode", "blocking"]),
    "udp-segment": Peer("raw UDP, GSO+GRO", "udp_echo", None, "udp", both=["--mode", "spinning", "--segment", "on"]),
    # One datagram per look at the socket: the quickest a single outstanding call can be.
    "udp-spin-1": Peer("raw UDP, spinning", "udp_echo", None, "udp", both=["--mode", "spinning", "--batch", "1"]),
}
for _size in "1472", "8972":  # raw UDP as fast as it goes here, and in jumbo frames
    PEERS[f"udp-bulk-{_size}"] = Peer(f"raw UDP, GSO+GRO, {_size} B", "udp_bulk", None, "udp",
                                      client=["--segment", _size])
BROADCAST_PEERS = 16
PEERS["udp-bulk-many"] = Peer(f"raw UDP, GSO, to {BROADCAST_PEERS}", "udp_bulk", None, "udp",
                              both=["--peers", str(BROADCAST_PEERS)])
WEIR_WITH_SECRET = "weir-secret"  # the peer of a case whose Weir has an identity
OTHER_BUILD = "other-build"  # the peer of every case with --against: another build of the weir command
NO_WORSE = 0.97  # the smallest ratio to another build that still counts as equal


def at_least(bound):
    return lambda value: value >= bound


def at_most(bound):
    return lambda value: value <= bound


class Case:
    def __init__(self, name, request, reply, window, peers, client_mode="inline", server_idle="spin", metric="rate",
                 goal=None, ratio_goals=None, identity=False, broadcast=False):
        self.name = name
        self.request = request
        self.reply = reply
        self.window = window
        self.peers = peers
        self.client_mode = client_mode
        self.server_idle = server_idle
        # "rate": calls/s, more is better; "bytes": payload/s, likewise; "latency": median in us, less is better
        self.metric = metric
        self.goal = goal  # (text, predicate) about Weir's median, or one for each MTU
        self.ratio_goals = ratio_goals or {}  # peer name -> (text, predicate) about the median of the ratios
        self.identity = identity  # Weir's processes have certificates instead of a secret
        self.broadcast = broadcast  # each call goes to BROADCAST_PEERS servers of one process

    def goal_at(self, mtu_name):
        return self.goal[mtu_name] if isinstance(self.goal, dict) else self.goal

    def value(self, report):
        return {"rate": report["calls_per_s"], "bytes": report["payload_bytes_per_s"],
                "latency": report["latency_us"]["p50"]}[self.metric]

    def show(self, value):
        return {"rate": f"{value / 1e3:,.1f} k/s", "bytes": f"{value / 1e9:,.2f} GB/s",
                "latency": f"{value:,.2f} us"}[self.metric]

    def what(self):
        return {"rate": "calls/s", "bytes": "payload/s", "latency": "median latency"}[self.metric]


def large_case(name, size, window, at_loopback, at_1500):
    """Requests of `size` bytes, in GB/s: at least so many, and three times what gRPC does with TLS."""
    def goal(gigabytes):
        return f"at least {gigabytes:g} GB/s", at_least(gigabytes * 1e9)
    grpc = ["grpc-tls", "grpc-tls-async"]
    return Case(name, size, 64, window, [*grpc, "udp-bulk-1472", "udp-bulk-8972"], metric="bytes",
                goal={"loopback": goal(at_loopback), "1500": goal(at_1500)},
                ratio_goals={peer: ("at least 3 x", at_least(3)) for peer in grpc})


CASES = [
    Case("small-1024", 32, 32, 1024,
         ["grpc-tls", "grpc-tls-async", "zeromq", "udp-spin", "udp-block", "udp-segment"],
         goal=("at least 4,000 k/s", at_least(4e6)),
         ratio_goals={name: ("at least 80 x", at_least(80)) for name in ("grpc-tls", "grpc-tls-async")}),
    Case("small-1", 32, 32, 1, ["udp-spin-1"], metric="latency",
         ratio_goals={"udp-spin-1": ("at most 1.7 x", at_most(1.7))}),
    Case("threads-1024", 32, 32, 1024, ["grpc-tls", "zeromq"], client_mode="threads", server_idle="adaptive",
         goal=("at least 1,000 k/s", at_least(1e6))),
    Case("4k-1024", 4096, 64, 1024, ["grpc-tls", "zeromq", "udp-spin"],
         goal=("at least 400 k/s", at_least(4e5))),
    Case("identity-1024", 32, 32, 1024, [WEIR_WITH_SECRET], identity=True,
         ratio_goals={WEIR_WITH_SECRET: ("at least 0.95 x", at_least(0.95))}),
    large_case("large-64k", 64 << 10, 64, at_loopback=2, at_1500=2),
    large_case("large-1m", 1 << 20, 8, at_loopback=2.5, at_1500=2),
    large_case("large-8m", 8 << 20, 8, at_loopback=2.5, at_1500=2),
    Case("broadcast-16", 1 << 20, 8, 1, ["udp-bulk-many"], metric="latency", broadcast=True,
         ratio_goals={"udp-bulk-many": ("at most 2 x", at_most(2))}),
]
IDLE = "idle"
HANDSHAKE = "handshake"
STEPS = "steps"
# Of the handshake program's comparisons: what it is, and what the median of the ratios should be.
HANDSHAKE_ROWS = {
    "rate_udp": ("handshakes/s of a core, over UDP", ("at least 1 x", at_least(1))),
    "rate_memory": ("handshakes/s of a core, in memory", None),
    "cold_one": ("time to the first reply, 1 cold peer", ("at most 1 x", at_most(1))),
    "cold_many": ("time to the last of {peers} cold peers", ("at most 1 x", at_most(1))),
}
IDLE_GOAL_PERCENT = 1.0
UNDISTURBED_SHARE = 0.9
NEAR_NS = 150  # a round trip between cores that share a cache is below, between others above
NEAR_PATIENCE_S = 60
NEAR_TRIES = 4  # of a pair during which the cores moved apart
MTUS = {"1500": 1500, "loopback": None}
