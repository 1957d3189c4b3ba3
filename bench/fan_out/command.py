"""`./dev bench --case fan-out`: one process calls many at once, over loopback.

10,000 calls of 4 KiB with replies of 64 B are made at once to 100 peers in another process, in rounds; then 100,000
calls to 300 peers. Weir (sealed) alternates with a program that sends the same in bare UDP datagrams, and with gRPC
over TLS. What counts is the time of a round, that nothing is sent again, and that memory does not grow.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import tempfile

from bottleneck.contestants import CONTESTANTS, Contestant, Program
from processes import LOOPBACK, Failure
from report import machine_facts

REQUEST_BYTES, REPLY_BYTES = 4096, 64
SIZES = [(10_000, 100), (100_000, 300)]  # calls and peers
FIRST_PORTS = {"weir": 21_000, "raw-udp": 22_000, "grpc-tls": 23_000}
DEADLINE_S = 60
MOST_OVER_RAW_UDP, LEAST_OVER_GRPC = 1.1, 8
QUIET_LOAD = 0.5
FAN_OUT = {
    "raw-udp": Contestant("raw UDP, a datagram each way", "fan_out/raw_udp"),
    "weir": CONTESTANTS["weir"],
    "grpc-tls": CONTESTANTS["grpc-tls"],
}


class Core:
    """Where a program runs: on one core of this machine."""

    def __init__(self, number):
        self.number = number

    def inside(self, command):
        return ["taskset", "-c", str(self.number), *map(str, command)]


def resident_bytes(program):
    """The most that the program had; it is taskset's process, which became the program."""
    for line in pathlib.Path(f"/proc/{program.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Pair:
    """A contestant's client and server, for as long as a `with` block of the stack."""

    def __init__(self, stack, name, program, calls, peers, options):
        contestant = FAN_OUT[name]
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-fan-out-"))
        row = argparse.Namespace(identity=False, queue_bytes=0, clients=1)
        extra = contestant.options(row, directory)
        address = f"{LOOPBACK}:{FIRST_PORTS[name]}"
        common = ["--peers", peers, "--reply", REPLY_BYTES, *extra]
        self.server = stack.enter_context(Program(Core(options.server_core),
                                                  [program, "server", "--listen", address, *common]))
        self.client = stack.enter_context(Program(Core(options.client_core), [
            program, "client", "--peer", address, "--window", calls, "--size", REQUEST_BYTES, "--deadline", DEADLINE_S,
            *common]))

    def counters(self):
        return [program.counters() for program in (self.client, self.server)]

    def round(self):
        before = self.counters()
        self.client.ask("round")
        found = self.client.answer(DEADLINE_S + 15)
        after = self.counters()
        seconds = (found["end_ns"] - found["begin_ns"]) / 1e9
        counted = {name: sum(now[name] - then[name] for now, then in zip(after, before)) for name in after[0]}
        return {"seconds": seconds, "failed": found["failed"], "first_failure": found["first_failure"],
                "counters": counted,
                "resident_bytes": [resident_bytes(program) for program in (self.client, self.server)]}


def measure(calls, peers, options):
    """The rounds of each contestant, alternating."""
    with contextlib.ExitStack() as stack:
        pairs, missing = {}, []
        for name in options.only or FAN_OUT:
            program = options.build / "bench" / FAN_OUT[name].program
            if os.access(program, os.X_OK):
                pairs[name] = Pair(stack, name, str(program), calls, peers, options)
            else:
                missing.append(name)
        rounds = {name: [] for name in pairs}
        for _ in range(options.rounds + 1):
            for name, pair in pairs.items():
                rounds[name].append(pair.round())
        return rounds, missing


def judge(goals, text, value, met):
    goals.append({"text": text, "value": value, "met": bool(met)})
    print(f"    {'met   ' if met else 'MISSED'}  {text}: {value:.3g}")


def report(calls, peers, rounds):
    print(f"\n{calls:,} calls of {REQUEST_BYTES:,} B to {peers} peers, replies of {REPLY_BYTES} B")
    result = {"calls": calls, "peers": peers, "rounds": rounds, "goals": []}
    later = {name: every[1:] for name, every in rounds.items()}
    for name, every in rounds.items():
        median = statistics.median(each["seconds"] for each in later[name])
        failed = sum(each["failed"] for each in every)
        memory = " and ".join(f"{each / 1e6:.0f}" for each in every[-1]["resident_bytes"])
        print(f"  {FAN_OUT[name].label:<30} {1e3 * median:8.1f} ms a round, the first {1e3 * every[0]['seconds']:.1f}; "
              f"{memory} MB at most at client and server" + (f"; {failed} calls FAILED: {every[0]['first_failure']}" if failed else ""))
    if "weir" not in rounds:
        return result
    counters = [each["counters"] for each in later["weir"]]
    print("  Weir, all rounds after the first: " + ", ".join(
        f"{name.replace('_', ' ')} {sum(each[name] for each in counters):,}"
        for name in ("packets_sent", "packets_lost", "frames_retransmitted", "bytes_retransmitted", "probe_timeouts",
                     "packets_control_only")))
    goals = result["goals"]
    for other, bound, is_most in (("raw-udp", MOST_OVER_RAW_UDP, True), ("grpc-tls", LEAST_OVER_GRPC, False)):
        if other not in rounds:
            continue
        ratios = [mine["seconds"] / theirs["seconds"] for mine, theirs in zip(later["weir"], later[other])]
        ratio = statistics.median(ratios)
        if is_most:
            judge(goals, f"at most {bound:g} x the time of {FAN_OUT[other].label}", ratio, ratio <= bound)
        else:
            judge(goals, f"at least {bound:g} x faster than {FAN_OUT[other].label}", 1 / ratio, 1 / ratio >= bound)
    again = sum(each["frames_retransmitted"] for each in counters)
    judge(goals, "frames sent again (0 where nothing else runs)", again, again == 0)
    judge(goals, "calls failed", sum(each["failed"] for each in rounds["weir"]),
          all(each["failed"] == 0 for each in rounds["weir"]))
    first, last = (sum(each["resident_bytes"]) for each in (later["weir"][0], later["weir"][-1]))
    judge(goals, "growth of memory from the second round to the last", last / first - 1, last <= 1.05 * first)
    return result


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench --case fan-out", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "bench",
                        help="the build folder (default: build/bench)")
    parser.add_argument("--only", action="append", choices=list(FAN_OUT), help="only this one; repeatable")
    parser.add_argument("--size", action="append", help="CALLS:PEERS, such as 10000:100; repeatable (default: " +
                        ", ".join(f"{calls}:{peers}" for calls, peers in SIZES) + ")")
    parser.add_argument("--rounds", type=int, default=7, help="after the first, of each contestant (default 7)")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="where all figures are written (default: BUILD/fan_out.json)")
    options = parser.parse_args(arguments)
    options.json = options.json or options.build / "fan_out.json"
    try:
        options.sizes = [tuple(map(int, size.split(":"))) for size in options.size] if options.size else SIZES
        if any(len(size) != 2 or min(size) < 1 for size in options.sizes):
            raise ValueError
    except ValueError:
        parser.error("--size takes CALLS:PEERS")
    return options


def main(arguments):
    options = parse_arguments(arguments)
    facts = machine_facts()
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    if float(facts["load_before"]) > QUIET_LOAD:
        print("warning: the machine is busy with something else; rounds take longer, and more is sent again needlessly")
    results, failed = [], False
    for calls, peers in options.sizes:
        try:
            rounds, missing = measure(calls, peers, options)
        except Failure as failure:
            print(f"\n{calls:,} calls to {peers} peers: failed: {failure}")
            failed = True
            continue
        results.append(report(calls, peers, rounds))
        for name in missing:
            print(f"  {FAN_OUT[name].label:<30} not built"
                  + (f" (install {FAN_OUT[name].package}, then configure again)" if FAN_OUT[name].package else ""))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    missed = sum(not goal["met"] for result in results for goal in result["goals"])
    print(f"\nall figures: {options.json}")
    return 1 if failed or (options.check and missed) else 0
