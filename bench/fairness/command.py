"""`./dev bench --case fairness`: how flows share one bottleneck, with each other and with TCP.

Flows of Weir, of TCP cubic and of TCP BBR send as much as they can through a router with a token bucket of 250 Mbit/s.
Each row is measured with a queue of 64 KiB and no delay, and with a round trip of 10 ms and a queue of that times the
rate. What counts is what each flow delivers, ten times a second. All rows take three minutes. Needs root.
"""

import argparse
import json
import pathlib

from bottleneck.network import NotPossible, require_namespaces
from fairness import page
from fairness.flows import measure, sent_again
from fairness.network import can_delay
from fairness.rows import CUTS, all_rows
from processes import Failure, take_priority
from report import machine_facts


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench --case fairness", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "bench",
                        help="the build folder (default: build/bench)")
    parser.add_argument("--only", action="append", choices=sorted({row.name for row in all_rows()}),
                        help="only this row; repeatable")
    parser.add_argument("--cut", action="append", choices=list(CUTS), help="only this bottleneck; repeatable")
    parser.add_argument("--write-figures", action="store_true",
                        help="put tables into docs/congestion.md and pictures into docs/figures")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="FILE",
                        help="with --write-figures: figures that were measured before, instead of measuring")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="where all figures are written (default: BUILD/fairness.json)")
    options = parser.parse_args(arguments)
    if options.write_figures and (options.only or options.cut):
        parser.error("--write-figures writes the figures of all rows")
    if options.source and not options.write_figures:
        parser.error("--from has a meaning only with --write-figures")
    options.json = options.json or options.build / "fairness.json"
    return options


def seconds(value):
    return "never" if value is None else f"{value:.1f} s"


def show(found):
    print(f"\n{found['title']}; {found['cut']}, queue {found['queue_bytes'] / 1024:.4g} KiB")
    begin, end = found["judged"]
    print(f"  from {begin} to {end} s: Jain's index {found['jain']:.3f}, link used {found['link_used']:.1%}, one flow "
          f"{found['least_mbit']:.1f} to {found['most_mbit']:.1f} Mbit/s; fair within {seconds(found['seconds_to_fair'])}"
          + (f", link filled again within {seconds(found['seconds_to_fill'])}" if "seconds_to_fill" in found else "")
          + f"; dropped {found['dropped']:,} ({found['dropped_share']:.2%})"
          + (f", {found['lost_elsewhere']:,} lost elsewhere" if found["lost_elsewhere"] else ""))
    for flow in found["flows"]:
        again = sent_again(flow)
        again = f"{again:.2%} of its bytes" if again is not None else f"{flow['segments_retransmitted']:,} segments"
        print(f"  {flow['name']:<16} {flow['mbit']:7.1f} Mbit/s {flow['share']:7.1%}   sent again: {again}"
              + (f"   {flow['failed']} messages FAILED" if flow.get("failed") else ""), flush=True)


def run_rows(options):
    results = []
    for row in all_rows():
        if options.only and row.name not in options.only or options.cut and row.cut not in options.cut:
            continue
        if row.round_trip_ms and not can_delay():
            print(f"\n{row.title}; {row.cut}: not run: there is no /dev/net/tun to make a delay with")
            continue
        try:
            results.append(measure(row, options.build / "bench" / "fairness"))
        except Failure as failure:
            print(f"\n{row.title}; {row.cut}: failed: {failure}", flush=True)
            results.append({"name": row.name, "cut": row.cut, "failed": str(failure)})
            continue
        show(results[-1])
    return results


def main(arguments):
    options = parse_arguments(arguments)
    if options.source:
        page.write(json.loads(options.source.read_text()))
        return 0
    try:
        require_namespaces()
    except NotPossible as why:
        print(f"not run: fairness: {why}")
        return 0
    facts = machine_facts()
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    take_priority()  # a busy machine looks like a queue
    report = {"machine": facts, "results": run_rows(options)}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report) + "\n")
    print(f"\nall figures: {options.json}")
    if any("failed" in found for found in report["results"]):
        return 1
    if options.write_figures:
        page.write(report)
    return 0
