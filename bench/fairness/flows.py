"""Runs one row: programs, a look at the counters ten times a second, and what they say in the end."""

import contextlib
import pathlib
import sys
import time

from bottleneck.contestants import Program
from fairness.network import RATE_BITS, Network, address_of

FIRST_PORT = 7000
INTERVAL_S = 0.1
MEAN_S, MEAN_OF_MANY_S, MANY = 0.5, 1, 10  # rates are compared as means over so long; of many flows over longer
NEAR = 0.2    # to be this close to the fair share is to have it
TCP = pathlib.Path(__file__).resolve().with_name("tcp.py")


def targets(flow, places):
    return ",".join(f"{address_of(place)}:{FIRST_PORT + path}" for place in places for path in range(flow.paths))


def places_of(row):
    """The first flow has the first places, and so on."""
    taken, found = 0, []
    for flow in row.flows:
        found.append(list(range(taken, taken + len(flow.places))))
        taken += len(flow.places)
    return found


def server_commands(row, weir):
    weir_targets = [targets(flow, places) for flow, places in zip(row.flows, places_of(row)) if flow.kind == "weir"]
    if weir_targets:
        yield [weir, "server", "--at", ",".join(weir_targets)]
    for flow, places in zip(row.flows, places_of(row)):
        if flow.kind != "weir":
            yield [sys.executable, TCP, "server", "--at", targets(flow, places)]


def client_command(flow, places, weir):
    if flow.kind == "weir":
        return [weir, "client", "--at", targets(flow, places), "--window", flow.window]
    return [sys.executable, TCP, "client", "--at", targets(flow, places), "--congestion", flow.kind]


def jain(values):
    """1: all are equal. One of n has all: 1 / n."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


class Samples:
    """What had been delivered to each place at which time."""

    def __init__(self):
        self.times = []
        self.counts = []

    def add(self, now, counts):
        self.times.append(now)
        self.counts.append(counts)

    def at(self, when):
        """Between two looks, in proportion."""
        for k in range(1, len(self.times)):
            if self.times[k] >= when:
                part = (when - self.times[k - 1]) / (self.times[k] - self.times[k - 1])
                return [before + max(part, 0) * (after - before)
                        for before, after in zip(self.counts[k - 1], self.counts[k])]
        return self.counts[-1]

    def rates(self, begin, end):
        """Bits per second of each place."""
        return [8 * (after - before) / (end - begin) for before, after in zip(self.at(begin), self.at(end))]


def first_time(samples, begin, end, is_so, mean_s=MEAN_S):
    """After how many seconds the mean rates are as wanted, twice in a row and not by chance; None: never."""
    when = begin
    while when + 3 * mean_s <= end:
        if is_so(samples.rates(when, when + mean_s)) and is_so(samples.rates(when + mean_s, when + 3 * mean_s)):
            return when + mean_s / 2 - begin
        when += INTERVAL_S
    return None


def all_near(rates):
    fair = sum(rates) / len(rates)
    return fair > 0 and all(abs(rate - fair) <= NEAR * fair for rate in rates)


def figures(row, samples, queue, lost_elsewhere, counters):
    rates = samples.rates(*row.judged)
    flow_rates = [sum(rates[place] for place in places) for places in places_of(row)]
    dropped, arrived = queue["dropped"], queue["dropped"] + queue["forwarded"]
    found = {
        "name": row.name, "title": row.title, "cut": row.cut, "round_trip_ms": row.round_trip_ms,
        "queue_bytes": row.queue_bytes, "judged": row.judged, "seconds": row.seconds,
        "flows": [{"name": flow.name, "kind": flow.kind, "paths": flow.paths * len(flow.places), "start": flow.start,
                   "end": flow.end, "mbit": rate / 1e6, "share": rate / max(sum(rates), 1), **said}
                  for flow, rate, said in zip(row.flows, flow_rates, counters)],
        "link_used": sum(rates) / RATE_BITS,
        "jain": jain(rates),
        "least_mbit": min(rates) / 1e6, "most_mbit": max(rates) / 1e6,
        "seconds_to_fair": first_time(samples, row.joined(), row.all_there(), all_near,
                                      MEAN_OF_MANY_S if row.places >= MANY else MEAN_S),
        "dropped": dropped, "dropped_share": dropped / max(arrived, 1), "lost_elsewhere": lost_elsewhere,
        "times": [round(when, 3) for when in samples.times],
        "series": [[round(8 * (after[place] - before[place]) / (then - now) / 1e6, 2) for before, after, now, then in
                    zip(samples.counts, samples.counts[1:], samples.times, samples.times[1:])]
                   for place in range(row.places)],
    }
    if row.left() is not None:
        stays = [place for flow, places in zip(row.flows, places_of(row)) if flow.end > row.left() for place in places]
        found["seconds_to_fill"] = first_time(
            samples, row.left(), row.seconds, lambda rates: sum(rates[k] for k in stays) >= (1 - NEAR) * RATE_BITS)
    return found


def sent_again(said):
    """What a flow's counters say it sent again, as a share of its bytes; None for TCP, which counts segments."""
    if "bytes_sent" not in said:
        return None
    return said["bytes_retransmitted"] / max(said["bytes_sent"], 1)


def measure(row, programs):
    """`programs` is the folder that Weir's flow and the delay are in."""
    weir = programs / "weir"
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(row.places, row.queue_bytes, row.round_trip_ms, programs / "delay"))
        for command in server_commands(row, weir):
            stack.enter_context(Program(network.server, command))
        clients = [stack.enter_context(Program(network.client, client_command(flow, places, weir)))
                   for flow, places in zip(row.flows, places_of(row))]
        counters = [None] * len(clients)
        events = sorted([(flow.start, 0, k) for k, flow in enumerate(row.flows)]
                        + [(flow.end, 1, k) for k, flow in enumerate(row.flows)])
        samples = Samples()
        queue_before, lost_before = network.queue(), network.lost_elsewhere()
        begin = time.monotonic()
        samples.add(0, network.delivered())
        number = 1
        while events:
            due = min(events[0][0], number * INTERVAL_S)
            time.sleep(max(0, begin + due - time.monotonic()))
            if due == number * INTERVAL_S:
                samples.add(time.monotonic() - begin, network.delivered())
                number += 1
            while events and events[0][0] <= time.monotonic() - begin:
                _, ends, k = events.pop(0)
                if ends:
                    clients[k].ask("counters")
                    counters[k] = clients[k].answer(10)
                    clients[k].process.kill()
                else:
                    clients[k].ask("round")
                    clients[k].answer(10)
        queue = {name: value - queue_before[name] for name, value in network.queue().items()}
        return figures(row, samples, queue, network.lost_elsewhere() - lost_before, counters)
