#!/usr/bin/env python3
"""Compares Weir with other transports on this machine, in one run.

Each comparison alternates: Weir, peer, Weir, peer, ... One pair gives one ratio, and the median of the ratios counts,
so that a slow minute of the machine hits both sides. Servers run on one core, clients on another, over 127.0.0.1.
Weir's processes share a secret, but for the case that compares this with identities, and for the handshakes.
"""

import argparse
import json
import os
import pathlib
import signal
import sys

sys.dont_write_bytecode = True  # no __pycache__ beside the sources
from bottleneck import command as bottleneck  # noqa: E402
from fairness import command as fairness  # noqa: E402
from fan_out import command as fan_out  # noqa: E402
from jitter import command as jitter  # noqa: E402
from outstanding import command as outstanding  # noqa: E402
from cases import CASES, HANDSHAKE, IDLE, MTUS, OTHER_BUILD, PEERS, STEPS, UNDISTURBED_SHARE, WEIR_WITH_SECRET  # noqa: E402
from measure import Bench  # noqa: E402
from ns3 import command as ns3  # noqa: E402
from report import (aes_backend, machine_facts, run_case, run_handshakes, run_idle, run_steps,  # noqa: E402
                    smallest_spinning_share)


# Cases with options of their own, which are run only when they are asked for.
ALONE = {
    "bottleneck": (bottleneck, "a burst of calls through a router that is slower than the hosts (needs root)"),
    "fairness": (fairness, "flows that share a router with each other and with TCP (needs root)"),
    "jitter": (jitter, "calls through a network where packets are late or lost"),
    "fan-out": (fan_out, "a burst of calls from one process to many"),
    "outstanding": (outstanding, "a million calls at once that wait for their answers"),
    "ns3": (ns3, "bursts of calls in networks that ns-3 simulates"),
}


def case_that_goes_alone():
    """The case and the other arguments, which are its own; None if no such case is asked for."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--case", dest="cases", action="append")
    known, others = parser.parse_known_args()
    asked = [name for name in known.cases or [] if name in ALONE]
    if not asked:
        return None
    if len(known.cases) > 1:
        parser.error(f"--case {asked[0]} goes alone")
    return ALONE[asked[0]][0], others


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    names = [case.name for case in CASES] + [IDLE, HANDSHAKE, STEPS]
    parser.epilog = "\n".join(f"--case {name} --help: {what}" for name, (_, what) in ALONE.items())
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "bench",
                        help="the build folder (default: build/bench)")
    parser.add_argument("--weir", type=pathlib.Path, help="the weir command (default: BUILD/apps/weir/weir)")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs per comparison (default 7)")
    parser.add_argument("--quick", action="store_true", help="3 pairs of 0.5 s, and one MTU: under two minutes")
    parser.add_argument("--seconds", type=float, default=2, help="length of one run (default 2)")
    parser.add_argument("--case", dest="cases", action="append", choices=names, help="only this case; may be repeated")
    parser.add_argument("--peer", dest="peers", action="append", choices=list(PEERS),
                        help="compare with this one instead of the case's own peers; repeatable")
    parser.add_argument("--against", type=pathlib.Path, metavar="WEIR",
                        help="compare with this weir command, of another build, instead of the peers")
    parser.add_argument("--mtu", dest="mtus", action="append", choices=list(MTUS), help="only this MTU; repeatable")
    parser.add_argument("--near", action="store_true",
                        help="measure while both cores share a cache, which on a virtual machine comes and goes: wait "
                             "for it, and repeat pairs during which it ended (up to 3 times)")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="where all figures are written (default: BUILD/results.json)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers without Weir")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.seconds = 3, 0.5
        options.mtus = options.mtus or ["1500"]
    if options.against:
        if options.peers or options.peers_only:
            parser.error("--against takes the place of the peers")
        if not os.access(options.against, os.X_OK):
            parser.error(f"there is no weir command at {options.against}")
        options.peers = [OTHER_BUILD]
    options.json = options.json or options.build / "results.json"
    if options.pairs < 1 or options.seconds <= 0:
        parser.error("--pairs and --seconds must be positive")
    return options


def main():
    # A plain SIGTERM would leave our servers behind; this way every `with` block ends them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if (alone := case_that_goes_alone()) is not None:
        case, arguments = alone
        return case.main(arguments)
    options = parse_arguments()
    bench = Bench(options)
    if not options.peers_only and not os.access(bench.weir, os.X_OK):
        print(f"error: there is no weir command at {bench.weir}; build it first (./dev bench does), or name it with "
              "--weir, or measure the peers alone with --peers-only", file=sys.stderr)
        return 2
    facts = machine_facts()
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    print(f"{options.pairs} pairs of {options.seconds:g} s runs, server on core {options.server_core}, client on core "
          f"{options.client_core}; the peers always use the loopback MTU")

    if float(facts["load_before"]) > 0.5:
        print("warning: the machine is busy with something else; the figures will be low and the ratios uncertain")

    results = []
    for case in CASES:
        if options.cases and case.name not in options.cases:
            continue
        if options.peers_only and case.peers == [WEIR_WITH_SECRET]:
            continue
        # The peers do not know the MTU setting: without Weir one round is enough.
        for mtu_name in (["loopback"] if options.peers_only else options.mtus or MTUS):
            results.append(run_case(bench, case, mtu_name))
    alone = not options.peers_only and not options.against  # what has no other build to alternate with
    if alone and (not options.cases or IDLE in options.cases):
        results.append(run_idle(bench))
    if alone and (not options.cases or HANDSHAKE in options.cases):
        results.append(run_handshakes(bench))
    if alone and (not options.cases or STEPS in options.cases):
        results.extend(run_steps(bench, mtu_name) for mtu_name in options.mtus or MTUS)
    bench.close()
    if not options.peers_only:
        facts["aes"] = aes_backend(results)
        print(f"\nAES in use: {facts['aes']}")

    goals = [goal for result in results for goal in result["goals"]]
    missed = sum(not goal["met"] for goal in goals)
    failed = [row for result in results for row in result["rows"] if row["status"].startswith("failed")]
    unbuilt = sorted({row["label"] for result in results for row in result["rows"] if row["status"] != "ok"}
                     - {row["label"] for row in failed})
    disturbed = any(smallest_spinning_share(row) < UNDISTURBED_SHARE for result in results for row in result["rows"])
    if disturbed:
        print("\nThe machine was not quiet. Load hits the contestants unequally, so do not rely on these ratios.")
    print(f"\n{len(goals) - missed} of {len(goals)} goals met; {len(failed)} comparisons failed"
          + (f"; not built: {', '.join(unbuilt)}" if unbuilt else ""))
    settings = {"pairs": options.pairs, "seconds": options.seconds, "server_core": options.server_core,
                "client_core": options.client_core}
    report = {"machine": facts, "settings": settings, "disturbed": disturbed, "results": results}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"all figures: {options.json}")
    return 1 if failed or (options.check and missed) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
