"""`./dev bench --case bottleneck`: a burst of calls through a router that is slower than the hosts.

10,000 calls of 4 KiB with replies of 64 B (or, for the reply direction, the other way round) are made at once, to many
peers, in rounds. The router between client and server has a token bucket with a short queue. What counts is what the
burst costs: packets dropped, bytes sent again, time over what the bytes take on the link. Needs root.
"""

import argparse
import json
import os
import pathlib
import sys

from bottleneck.contestants import CONTESTANTS
from bottleneck.network import NotPossible
from bottleneck.rounds import STANDARD_RATE, Row, measure, median_of
from processes import Failure

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
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
    parser.add_argument("--direction", action="append", choices=["request", "reply"],
                        help="where the large messages and the bottleneck are; repeatable (default: both)")
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
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="where all figures are written (default: BUILD/bottleneck.json)")
    options = parser.parse_args(arguments)
    options.json = options.json or options.build / "bottleneck.json"
    return options


def chosen_rows(options):
    for rate_bits in options.rate or [STANDARD_RATE]:
        for queue in options.queue or [None]:
            for direction in options.direction or ["request", "reply"]:
                for peers in options.peers or [100]:
                    for name in options.only or CONTESTANTS:
                        yield Row(name, direction, peers, queue, rate_bits, options.clients, options.servers,
                                  options.calls, deadline_s=options.deadline)


def line(name, found):
    again = f"{found['retransmitted_share']:.2%}" if "retransmitted_share" in found else ""
    control = f"{found['control_packets']:,.0f} {found['control_share']:.1%}" if "control_packets" in found else ""
    probes = f"{found['probe_timeouts']:,.0f}" if "probe_timeouts" in found else ""
    dropped = f"{found['dropped']:,.0f} {found['dropped_share']:.2%}"
    elsewhere = f"  {found['dropped_elsewhere']:,.0f} lost elsewhere" if found["dropped_elsewhere"] else ""
    return (f"{name:>7}  {found['seconds']:6.3f} s  {found['over_bound']:6.2f}  {dropped:>16}  {found['goodput']:7.3f}  "
            f"{again:>10}  {control:>15}  {probes:>7}{elsewhere}")


def run_row(options, row):
    contestant = CONTESTANTS[row.contestant]
    result = {**row.facts(), "contestant": row.contestant, "status": "ok"}
    print(f"\n{contestant.label}, {row.peers} peers, {row.direction} side, {row.rate_bits / 1e6:g} Mbit/s, queue "
          f"{row.queue_bytes / 1024:g} KiB, {row.clients} client and {row.servers} server processes; bound "
          f"{row.bound_s():.3f} s", flush=True)
    program = options.build / "bench" / "bottleneck" / contestant.program
    if not os.access(program, os.X_OK):
        result["status"] = "not built" + (f" (install {contestant.package}, then configure again)"
                                          if contestant.package else "")
        print(f"  {result['status']}")
        return result
    extra = [*contestant.options, *(["--identity", "DIRECTORY"] if options.identity and row.contestant == "weir"
                                    else [])]
    print(COLUMNS)
    try:
        every = measure(row, str(program), options.rounds, extra,
                        lambda number, found: print(line("first" if number == 0 else number, found), flush=True))
    except Failure as failure:
        result["status"] = f"failed: {failure}"
        print(f"  {result['status']}")
        return result
    result.update(first=every[0], rounds=every[1:], median=median_of(every[1:]))
    print(line("median", result["median"]), flush=True)
    return result


def main(arguments):
    options = parse_arguments(arguments)
    results = []
    try:
        for row in chosen_rows(options):
            results.append(run_row(options, row))
    except NotPossible as why:
        print(f"not run: bottleneck: {why}")
        return 0
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"results": results}, indent=1) + "\n")
    print(f"\nall figures: {options.json}")
    return 1 if any(result["status"].startswith("failed") for result in results) else 0
