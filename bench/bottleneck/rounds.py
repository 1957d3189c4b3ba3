"""One row of the comparison: rounds of calls through the bottleneck, and what each of them cost."""

import contextlib
import statistics
import tempfile
import time

from bottleneck.contestants import Program
from bottleneck.network import CLIENT, ETHERNET_HEADER, MTU, SERVER, Network

FIRST_PORT = 7000
LARGE_BYTES, SMALL_BYTES = 4096, 64  # of the messages in the limited direction and in the other
IP_AND_UDP_HEADERS = 28
SETTLE_S = 0.3  # after a round, until the last acknowledgements are counted
GRACE_S = 15  # beyond the deadline of the calls, until a client has said what became of them
STANDARD_RATE, STANDARD_BURST, STANDARD_QUEUE = 250e6, 8 << 10, 64 << 10
SMALLEST_BURST = 2 * MTU  # a token bucket drops what it cannot hold


class Row:
    """What is measured: the one who calls and answers, the calls, and the bottleneck."""

    def __init__(self, contestant, direction, peers, queue_bytes=None, rate_bits=STANDARD_RATE, clients=1, servers=1,
                 calls=10_000, deadline_s=60, identity=False):
        self.contestant = contestant
        self.direction = direction
        self.peers = peers
        self.rate_bits = rate_bits
        scale = rate_bits / STANDARD_RATE
        self.queue_bytes = queue_bytes or round(STANDARD_QUEUE * scale)
        self.burst_bytes = max(round(STANDARD_BURST * scale), SMALLEST_BURST)
        self.clients = min(clients, calls)
        self.servers = min(servers, peers)
        self.calls = calls
        self.deadline_s = deadline_s
        self.identity = identity  # whether Weir's processes have certificates, not a shared secret

    @property
    def request_bytes(self):
        return LARGE_BYTES if self.direction == "request" else SMALL_BYTES

    @property
    def reply_bytes(self):
        return LARGE_BYTES if self.direction == "reply" else SMALL_BYTES

    def bound_s(self):
        """The least time that the payload of the limited direction takes in full UDP packets."""
        payload = self.calls * LARGE_BYTES
        packets = payload / (MTU - IP_AND_UDP_HEADERS)
        return 8 * (payload + packets * (IP_AND_UDP_HEADERS + ETHERNET_HEADER)) / self.rate_bits

    def facts(self):
        return {name: getattr(self, name) for name in
                ("direction", "peers", "queue_bytes", "burst_bytes", "rate_bits", "clients", "servers", "calls",
                 "request_bytes", "reply_bytes", "identity")} | {"bound_s": self.bound_s()}


def portions(total, parts):
    """`total` in `parts` that are as equal as whole numbers can be."""
    return [total // parts + (k < total % parts) for k in range(parts)]


def server_commands(row, program, extra):
    port = FIRST_PORT
    for peers in portions(row.peers, row.servers):
        yield [program, "server", "--listen", f"{SERVER}:{port}", "--peers", peers, "--reply", row.reply_bytes, *extra]
        port += peers


def client_commands(row, program, extra):
    for calls in portions(row.calls, row.clients):
        yield [program, "client", "--peer", f"{SERVER}:{FIRST_PORT}", "--peers", row.peers, "--window", calls, "--size",
               row.request_bytes, "--reply", row.reply_bytes, "--deadline", row.deadline_s, *extra]


def sum_of(counters):
    total = {}
    for each in counters:
        for name, value in each.items():
            total[name] = total.get(name, 0) + value
    return total


def difference(after, before):
    return {name: value - before.get(name, 0) for name, value in after.items()}


def share(part, whole):
    return part / whole if whole else 0.0


def figures(row, replies, network, programs):
    """Of one round: what the clients said, and what the network and the programs counted meanwhile."""
    failures = [reply["first_failure"] for reply in replies if reply["failed"]]
    completed = sum(reply["completed"] for reply in replies)
    seconds = (max(reply["end_ns"] for reply in replies) - min(reply["begin_ns"] for reply in replies)) / 1e9
    limited, other = row.direction, "reply" if row.direction == "request" else "request"
    dropped = network[f"{limited}_dropped"]
    found = {
        "failed": row.calls - completed,
        "first_failure": failures[0] if failures else "",
        "seconds": seconds,
        "over_bound": seconds / row.bound_s(),
        "dropped": dropped,
        "dropped_share": share(dropped, network[f"{limited}_forwarded"] + dropped),
        "dropped_elsewhere": network[f"{other}_dropped"] + network["dropped_elsewhere"] + network["udp_full_sockets"],
        "goodput": share(completed * (row.request_bytes + row.reply_bytes), network["sent_bytes"]),
        "sent_bytes": network["sent_bytes"],
        "sent_packets": network["sent_packets"],
        "network": network,
        "programs": programs,
    }
    if "bytes_sent" in programs:
        found["retransmitted_share"] = share(programs["bytes_retransmitted"], programs["bytes_sent"])
        found["control_packets"] = programs["packets_control_only"]
        found["control_share"] = share(programs["packets_control_only"], programs["packets_sent"])
        found["probe_timeouts"] = programs["probe_timeouts"]
    elif network["tcp_segments"]:
        # The kernel counts segments that went out again beside those that went out.
        whole = network["tcp_segments"] + network["tcp_retransmitted"]
        found["retransmitted_share"] = share(network["tcp_retransmitted"], whole)
    return found


def measure(row, contestant, program, rounds, told=lambda number, found: None):
    """The first round, which opens the connections, and the others; `told` hears of each as it ends."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(row.direction, row.rate_bits, row.burst_bytes, row.queue_bytes))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-bottleneck-"))
        extra = contestant.options(row, directory)
        servers = [stack.enter_context(Program(network.server, command))
                   for command in server_commands(row, program, extra)]
        clients = [stack.enter_context(Program(network.client, command))
                   for command in client_commands(row, program, extra)]

        def count():
            return network.counters(), sum_of(each.counters() for each in [*clients, *servers])

        every, before = [], count()
        for number in range(rounds + 1):
            for client in clients:
                client.ask("round")
            replies = [client.answer(row.deadline_s + GRACE_S) for client in clients]
            time.sleep(SETTLE_S)
            after = count()
            found = figures(row, replies, *(difference(now, then) for now, then in zip(after, before)))
            told(number, found)
            every.append(found)
            before = after
    return every


def median_of(rounds):
    """The median of each figure that is a number."""
    names = [name for name, value in rounds[0].items() if isinstance(value, (int, float))]
    return {name: statistics.median(each[name] for each in rounds) for name in names}
