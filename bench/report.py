"""What is printed of measurements, and whether they are as they should be."""

import os
import pathlib
import platform
import statistics
import sys

from cases import (HANDSHAKE, HANDSHAKE_ROWS, IDLE, IDLE_GOAL_PERCENT, MTUS, NEAR_NS, NO_WORSE, STEPS,
                   UNDISTURBED_SHARE)
from processes import Failure


def read_first(path, fallback="unknown"):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return fallback


def machine_facts():
    model = "unknown"
    for line in read_first("/proc/cpuinfo", "").splitlines():
        if line.lower().startswith(("model name", "cpu part")):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "loopback_mtu": read_first("/sys/class/net/lo/mtu"),
        "receive_buffer_limit": read_first("/proc/sys/net/core/rmem_max"),
        "load_before": f"{os.getloadavg()[0]:.2f}",
    }


def judge(result, text, met):
    result["goals"].append({"goal": text, "met": bool(met)})
    print(f"    {'met   ' if met else 'MISSED'}  {text}")


def print_row(case, row):
    if row["status"] != "ok":
        print(f"  {row['label']:<20} {row['status']}")
        return
    line = f"  {row['label']:<20} {case.show(row['peer_median']):>14}"
    if "ratio_median" in row:
        line += (f" {case.show(row['weir_median']):>16} {row['ratio_median']:>10.2f} x"
                 f"   ({row['ratio_min']:.2f} .. {row['ratio_max']:.2f})")
    lost = sum(pair["peer"].get("lost", 0) for pair in row["pairs"])
    far = sum(distance is not None and distance >= NEAR_NS for distance in row["distances_ns"])
    if far:
        line += f"   cores far apart in {far} of {len(row['pairs'])} pairs"
    share = smallest_spinning_share(row)
    if share < UNDISTURBED_SHARE:
        line += f"   DISTURBED: a spinning client got {100 * share:.0f} % of its core"
    print(line + (f"   {lost} datagrams lost" if lost else ""))


def smallest_spinning_share(row):
    """A spinning client uses its whole core unless another process takes it away: a probe of how quiet it was."""
    reports = [report for pair in row["pairs"] for report in pair.values()
               if report.get("mode") == "spinning" or (report.get("mode"), report.get("idle")) == ("inline", "spin")]
    return min((report["cpu_s"] / report["seconds"] for report in reports), default=1.0)


def judge_against(result, case, row):
    """Whether the build that is measured is as quick as the other one, within what is measurable."""
    ratio = row.get("ratio_median")
    if case.metric == "latency":
        judge(result, f"at most {1 / NO_WORSE:.2f} x {row['label']}", ratio is not None and ratio <= 1 / NO_WORSE)
    else:
        judge(result, f"at least {NO_WORSE} x {row['label']}", ratio is not None and ratio >= NO_WORSE)


def run_case(bench, case, mtu_name):
    mtu = MTUS[mtu_name]
    result = {"case": case.name, "mtu": mtu_name, "request_bytes": case.request, "reply_bytes": case.reply,
              "window": case.window, "metric": case.metric, "rows": [], "goals": []}
    print(f"\n{case.name}, MTU {mtu_name}: {case.request} B requests, {case.reply} B replies, "
          f"{case.window} outstanding, client {case.client_mode}; {case.what()}")
    print(f"  {'peer':<20} {'peer':>14}" + ("" if bench.options.peers_only else f" {'weir':>16} {'weir/peer':>12}"))
    for name in case.peers if case.identity and not bench.options.against else bench.options.peers or case.peers:
        row = bench.compare(case, mtu, name)
        result["rows"].append(row)
        print_row(case, row)
        sys.stdout.flush()
    if bench.options.peers_only:
        return result

    reports = [pair["weir"] for row in result["rows"] for pair in row["pairs"] if "weir" in pair]
    if reports:
        result["weir_median"] = statistics.median(case.value(report) for report in reports)
        seen = ", ".join(sorted({str(report["mtu"]) for report in reports if "mtu" in report}))
        goodput = [report["goodput"] for report in reports if "goodput" in report]
        print(f"    weir: {case.show(result['weir_median'])} in {len(reports)} runs"
              + (f", MTU {seen}" if seen else "")
              + (f", goodput {statistics.median(goodput):.3f}" if goodput else ""))
    if bench.options.against:
        for row in result["rows"]:
            judge_against(result, case, row)
        return result
    if case.goal:
        text, reached = case.goal_at(mtu_name)
        judge(result, f"weir {text}", reports and reached(result["weir_median"]))
    for row in result["rows"]:
        if row["peer"] in case.ratio_goals:
            text, reached = case.ratio_goals[row["peer"]]
            judge(result, f"{text} {row['label']}", "ratio_median" in row and reached(row["ratio_median"]))
    return result


def run_idle(bench):
    result = {"case": IDLE, "rows": [], "goals": []}
    print("\nidle: CPU of an adaptive server process with nothing to do, over 5 s")
    try:
        result["percent_of_a_core"] = bench.measure_idle()
        print(f"  weir {result['percent_of_a_core']:.2f} % of a core")
    except Failure as failure:
        result["status"] = f"failed: {failure}"
        print(f"  {result['status']}")
    percent = result.get("percent_of_a_core")
    judge(result, f"under {IDLE_GOAL_PERCENT:.0f} % of a core", percent is not None and percent < IDLE_GOAL_PERCENT)
    return result


def run_handshakes(bench):
    result = {"case": HANDSHAKE, "rows": [], "goals": []}
    print("\nhandshake: mutual authentication, QUIC of Weir against TLS 1.3 over TCP of OpenSSL, the same certificates")
    try:
        report = result["report"] = bench.measure_handshakes()
    except Failure as failure:
        status = str(failure) if str(failure).startswith("not built") else f"failed: {failure}"
        result["rows"].append({"label": HANDSHAKE, "status": status, "pairs": []})
        print(f"  {status}")
        judge(result, "handshakes: at least 1 x TLS", False)
        return result
    print(f"  {report['libraries']}")
    print(f"  {'':<52} {'TLS':>12} {'weir':>14} {'weir/TLS':>12}")
    for key in "ed25519", "p256":
        for row in report[key]:
            what, _ = HANDSHAKE_ROWS[row["name"]]
            print(f"  {key:<8} {what.format(**report):<43} {row['tls_median']:>8,.1f} {row['unit']:<4}"
                  f" {row['weir_median']:>8,.1f} {row['unit']:<4} {row['ratio_median']:>10.2f} x"
                  f"   ({row['ratio_min']:.2f} .. {row['ratio_max']:.2f})")
    for key in "ed25519", "p256":
        for row in report[key]:
            what, goal = HANDSHAKE_ROWS[row["name"]]
            if goal:
                text, reached = goal
                judge(result, f"{what.format(**report)}, {key}: {text} TLS", reached(row["ratio_median"]))
    return result


def run_steps(bench, mtu_name):
    """Where the time of a large message goes, each step alone on one core."""
    result = {"case": STEPS, "mtu": mtu_name, "rows": [], "goals": []}
    print(f"\nsteps, MTU {mtu_name}: what each step of a large message costs, alone on one core")
    try:
        result["report"] = bench.measure_steps(mtu_name)
    except Failure as failure:
        print(f"  {failure}")
        return result
    for step in result["report"]["steps"]:
        cycles = f" {step['cycles_per_byte']:>7.3f} cycles/B" if "cycles_per_byte" in step else ""
        print(f"  {step['side']:<9} {step['step']:<24} {step['ns_per_byte']:>8.4f} ns/B{cycles} "
              f"{1 / step['ns_per_byte']:>8.1f} GB/s")
    return result


def aes_backend(results):
    for result in results:
        for row in result["rows"]:
            for pair in row["pairs"]:
                for key in ("aes_backend", "aes", "aead"):
                    if key in pair.get("weir", {}):
                        return pair["weir"][key]
    return "not reported"
