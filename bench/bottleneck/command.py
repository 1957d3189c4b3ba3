"""`./dev bench --case bottleneck`: a burst of calls through a router that is slower than the hosts.

10,000 calls of 4 KiB with replies of 64 B (or, for the reply direction, the other way round) are made at once, to many
peers, in rounds. The router between client and server has a token bucket with a short queue. What counts is what the
burst costs: packets dropped, bytes sent again, time over what the bytes take on the link. Needs root.
"""

import argparse
import json
import os
import pathlib

from bottleneck.contestants import CONTESTANTS
from bottleneck.goals import goals
from bottleneck.network import NotPossible, require_namespaces
from bottleneck.rounds import STANDARD_RATE, Row, measure, median_of
from processes import Failure, take_priority
from report import machine_facts

QUIET_LOAD = 0.5
DIRECTIONS = ("request", "reply")
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
# What --all measures: rows of (direction, peers, and what else differs from the standard).
ALL_ROWS = ([("request", peers, {}) for peers in (100, 30, 10, 4, 1)]
            + [("request", 100, {"queue_bytes": 1 << 20}), ("reply", 100, {})]
            + [(direction, 100, {"queue_bytes": size}) for direction in DIRECTIONS for size in (16 << 10, 256 << 10)]
            + [(direction, 100, {"rate_bits": rate}) for direction in DIRECTIONS for rate in (25e6, 2500e6)]
            + [(direction, 300, {}) for direction in DIRECTIONS]
            + [(direction, 100, {"clients": 4}) for direction in DIRECTIONS])
COLUMNS = (f"{'round':>7}  {'time':>8}  {'/bound':>6}  {'dropped':>16}  {'goodput':>7}  {'sent again':>10}  "
           f"{'control only':>15}  {'probes':>7}")


def size(text):
    unit = text[-1:].lower() if text[-1:].isalpha() else ""
    try:
        value = int(float(text[:len(text) - len(unit)]) * UNITS[unit])
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"'{text}' is no size, such as 64k or 1m")
    if value < 3000:
        raise argparse.ArgumentTypeError("a queue holds 3,000 bytes at least")
    return value


def rate(text):
    for unit, factor in RATE_UNITS.items():
        if text.lower().endswith(unit):
            try:
                value = float(text[:-len(unit)]) * factor
            except ValueError:
                break
            if 1e6 <= value <= 100e9:
                return value
    raise argparse.ArgumentTypeError(f"'{text}' is no rate between 1mbit and 100gbit, such as 250mbit")


def between(lowest, highest):
    def parse(text):
        value = int(text)
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"{value} is not between {lowest} and {highest}")
        return value
    return parse


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench --case bottleneck", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "bench",
                        help="the build folder (default: build/bench)")
    parser.add_argument("--only", action="append", choices=list(CONTESTANTS), help="only this one; repeatable")
    parser.add_argument("--direction", action="append", choices=DIRECTIONS,
                        help="where the large messages and the bottleneck are; repeatable (default: both)")
    parser.add_argument("--all", action="store_true",
                        help="all rows that have goals: other numbers of peers, queues, rates and client processes")
    parser.add_argument("--peers", type=between(1, 4096), action="append", help="repeatable (default: 100)")
    parser.add_argument("--queue", type=size, action="append", help="of the router, such as 64k; repeatable (default: "
                        "64k at 250 Mbit/s, and in proportion at other rates)")
    parser.add_argument("--rate", type=rate, action="append", help="of the router, such as 250mbit; repeatable")
    parser.add_argument("--clients", type=between(1, 64), default=1, help="client processes, which share the calls")
    parser.add_argument("--servers", type=between(1, 64), default=1, help="server processes, which share the peers")
    parser.add_argument("--calls", type=between(1, 60_000), default=10_000, help="in one round (default 10,000)")
    parser.add_argument("--rounds", type=between(1, 1000), default=5, help="after the first (default 5)")
    parser.add_argument("--deadline", type=between(1, 600), default=60, help="of each call, in seconds (default 60)")
    parser.add_argument("--identity", action="store_true",
                        help="Weir's processes have certificates, not a shared secret")
    parser.add_argument("--ordinary", action="store_true",
                        help="all programs without real-time priority: where there are more of them than processors, those "
                             "that yield do not give way to each other then, and are measured instead of the network")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="where all figures are written (default: BUILD/bottleneck.json)")
    options = parser.parse_args(arguments)
    if options.all and (options.direction or options.peers or options.queue or options.rate or options.clients > 1):
        parser.error("--all has its own directions, peers, queues, rates and clients")
    options.json = options.json or options.build / "bottleneck.json"
    return options


def chosen_rows(options):
    """The rows, without who is measured."""
    common = {"calls": options.calls, "servers": options.servers, "deadline_s": options.deadline,
              "identity": options.identity}
    if options.all:
        return [{"direction": direction, "peers": peers, **common, **more} for direction, peers, more in ALL_ROWS]
    return [{"direction": direction, "peers": peers, "queue_bytes": queue, "rate_bits": rate_bits,
             "clients": options.clients, **common}
            for rate_bits in options.rate or [STANDARD_RATE] for queue in options.queue or [None]
            for direction in options.direction or DIRECTIONS for peers in options.peers or [100]]


def line(name, found):
    again = f"{found['retransmitted_share']:.2%}" if "retransmitted_share" in found else ""
    control = f"{found['control_packets']:,.0f} {found['control_share']:.1%}" if "control_packets" in found else ""
    probes = f"{found['probe_timeouts']:,.0f}" if "probe_timeouts" in found else ""
    dropped = f"{found['dropped']:,.0f} {found['dropped_share']:.2%}"
    failed = f"  {found['failed']:,.0f} calls failed" if found["failed"] else ""
    elsewhere = f"  {found['dropped_elsewhere']:,.0f} lost elsewhere" if found["dropped_elsewhere"] else ""
    return (f"{name:>7}  {found['seconds']:6.3f} s  {found['over_bound']:6.2f}  {dropped:>16}  "
            f"{found['goodput']:7.3f}  {again:>10}  {control:>15}  {probes:>7}{failed}{elsewhere}")


def heading(row):
    processes = f"{row.clients} client and {row.servers} server processes" if row.clients + row.servers > 2 else ""
    return (f"{CONTESTANTS[row.contestant].label}, {row.peers} peers, bottleneck on the {row.direction} side, "
            f"{row.rate_bits / 1e6:g} Mbit/s, queue {row.queue_bytes / 1024:.4g} KiB"
            + (f", {processes}" if processes else "") + f"; bound {row.bound_s():.3f} s")


class Comparison:
    """The rows that were measured, and what they are compared with."""

    def __init__(self, options):
        self.options = options
        self.results = []
        self.raw_udp_seconds = {}  # by what makes a difference to it

    @staticmethod
    def link(row):
        return row.direction, row.rate_bits, row.queue_bytes, row.clients, row.calls

    def run(self, row):
        contestant = CONTESTANTS[row.contestant]
        if not contestant.per_peer and self.link(row) in self.raw_udp_seconds:
            return
        result = {**row.facts(), "contestant": row.contestant, "status": "ok"}
        self.results.append(result)
        print(f"\n{heading(row)}", flush=True)
        program = self.options.build / "bench" / contestant.program
        if not os.access(program, os.X_OK):
            hint = f" (install {contestant.package}, then configure again)" if contestant.package else ""
            result["status"] = "not built" + hint
            print(f"  {result['status']}")
            return
        print(COLUMNS)
        try:
            every = measure(row, contestant, str(program), self.options.rounds,
                            lambda number, found: print(line(number or "first", found), flush=True))
        except Failure as failure:
            result["status"] = f"failed: {failure}"
            print(f"  {result['status']}")
            return
        result.update(first=every[0], rounds=every[1:], median=median_of(every[1:]))
        print(line("median", result["median"]), flush=True)
        if failed := [found for found in every if found["failed"]]:
            why = failed[0]["first_failure"]
            result["status"] = f"failed: calls failed in {len(failed)} of {len(every)} rounds, the first with: {why}"
            print(f"  {result['status']}")
            return
        self.compare(row, result)

    def compare(self, row, result):
        raw = self.raw_udp_seconds.get(self.link(row))
        if raw:
            result["over_raw_udp"] = result["median"]["seconds"] / raw
            print(f"  {result['over_raw_udp']:.2f} x the time of raw UDP")
        if row.contestant == "raw-udp":
            self.raw_udp_seconds[self.link(row)] = result["median"]["seconds"]
        if row.contestant == "weir":
            result["goals"] = goals(row, result["median"], raw)
            missed = [goal["text"] for goal in result["goals"] if not goal["met"]]
            print("  goals: " + (f"missed: {'; '.join(missed)}" if missed else "all met"))


def main(arguments):
    options = parse_arguments(arguments)
    comparison = Comparison(options)
    try:
        require_namespaces()
    except NotPossible as why:
        print(f"not run: bottleneck: {why}")
        return 0
    facts = machine_facts()
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    if float(facts["load_before"]) > QUIET_LOAD:
        print("warning: the machine is busy with something else; rounds take longer, and more is sent again needlessly")
    if not options.ordinary:
        take_priority()
    for settings in chosen_rows(options):
        for name in options.only or CONTESTANTS:
            comparison.run(Row(name, **settings))
    results = comparison.results
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    missed = sum(not goal["met"] for result in results for goal in result.get("goals", []))
    failed = any(result["status"].startswith("failed") for result in results)
    print(f"\nall figures: {options.json}")
    return 1 if failed or (options.check and missed) else 0
