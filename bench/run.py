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
import platform
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # no __pycache__ beside the sources
from processes import (LOOPBACK, Failure, Server, free_ports, last_words, process_cpu_seconds,  # noqa: E402
                       run_client)

# ---------------------------------------------------------------------------------------------------------------------
# What is compared
# ---------------------------------------------------------------------------------------------------------------------


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
MTUS = {"1500": 1500, "loopback": None}


# ---------------------------------------------------------------------------------------------------------------------
# One measurement
# ---------------------------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, options):
        self.options = options
        self.peer_directory = options.build / "bench" / "peers"
        self.weir = options.weir or options.build / "apps" / "weir" / "weir"
        self.environment = dict(os.environ)
        self.environment.setdefault("WEIR_SECRET", secrets.token_hex(32))
        self.identities = None  # a folder, made when a case needs it

    def close(self):
        if self.identities:
            self.identities.cleanup()

    def security(self, case):
        """What a Weir process of this case is started with; without anything it takes WEIR_SECRET."""
        if not case.identity:
            return []
        if not self.identities:
            self.identities = tempfile.TemporaryDirectory(prefix="weir-bench-")
            root = pathlib.Path(self.identities.name)
            for step in (["new-ca", root / "ca"],
                         ["issue", root / "ca", "--address", LOOPBACK, "--out", root / "node"]):
                result = subprocess.run([self.weir, "identity", *step], stdin=subprocess.DEVNULL, capture_output=True,
                                        text=True)
                if result.returncode != 0:
                    raise Failure(f"weir identity: {last_words(result.stderr)}")
        return ["--identity", str(pathlib.Path(self.identities.name, "node"))]

    def client_common(self, case, port):
        return ["--peer", f"{LOOPBACK}:{port}", "--window", str(case.window), "--size", str(case.request),
                "--seconds", str(self.options.seconds), "--core", str(self.options.client_core)]

    def reply(self, case):
        return ["--reply", str(case.reply)]

    def weir_server(self, idle, mtu, security=(), servers=1):
        port = free_ports("udp", servers)
        command = [str(self.weir), "perf", "server", "--listen", f"{LOOPBACK}:{port}", "--core",
                   str(self.options.server_core), "--mode", "inline", "--idle", idle, "--servers", str(servers),
                   *security]
        return Server(command + (["--mtu", str(mtu)] if mtu else []), "udp", port + servers - 1, self.environment)

    def measure_weir(self, case, mtu, security=()):
        servers = BROADCAST_PEERS if case.broadcast else 1
        with self.weir_server(case.server_idle, mtu, security, servers) as server:
            first = server.port - servers + 1
            command = [str(self.weir), "perf", "broadcast" if case.broadcast else "client",
                       *self.client_common(case, first), *([] if case.broadcast else self.reply(case)), "--mode",
                       case.client_mode, "--json", *security, *(["--mtu", str(mtu)] if mtu else [])]
            if case.broadcast:
                ports = range(first, first + servers)
                command[command.index("--peer") + 1] = ",".join(f"{LOOPBACK}:{port}" for port in ports)
            return run_client(command, self.options.seconds, self.environment)

    def is_built(self, peer):
        return os.access(self.peer_directory / peer.program, os.X_OK)

    def measure_peer(self, case, peer):
        program = str(self.peer_directory / peer.program)
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as directory:
            extra = ["--certificate", directory] if peer.program == "grpc_tls" else []
            port = free_ports(peer.transport, BROADCAST_PEERS if case.broadcast else 1)
            command = [program, "server", "--listen", f"{LOOPBACK}:{port}", "--core", str(self.options.server_core),
                       *peer.server_options, *extra]
            with Server(command, peer.transport, port, self.environment):
                command = [program, "client", *self.client_common(case, port), *self.reply(case),
                           *peer.client_options, *extra]
                return run_client(command, self.options.seconds, self.environment)

    def core_distance(self):
        """Nanoseconds from one core to the other and back; None if that is not known."""
        program = self.peer_directory / "core_distance"
        if not os.access(program, os.X_OK) or self.options.server_core == self.options.client_core:
            return None
        command = [str(program), str(self.options.client_core), str(self.options.server_core)]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return float(result.stdout) if result.returncode == 0 else None

    def await_near_cores(self):
        """With --near: until the cores share a cache, or for a minute."""
        end = time.monotonic() + NEAR_PATIENCE_S
        while True:
            distance = self.core_distance()
            if not self.options.near or distance is None or distance < NEAR_NS or time.monotonic() > end:
                return distance
            time.sleep(0.5)

    def compare(self, case, mtu, peer_name):
        """One row: `pairs` pairs of Weir and the peer, alternating."""
        peer = PEERS.get(peer_name)
        label = peer.label if peer else "weir with a secret"
        row = {"peer": peer_name, "label": label, "pairs": [], "distances_ns": [], "status": "ok"}
        if peer and not self.is_built(peer):
            row["status"] = "not built" + (f" (install {peer.package}, then configure again)" if peer.package else "")
            return row
        try:
            for _ in range(self.options.pairs):
                pair = {}
                row["distances_ns"].append(self.await_near_cores())
                if not self.options.peers_only:
                    side = "weir"
                    pair["weir"] = self.measure_weir(case, mtu, self.security(case))
                side = label
                pair["peer"] = self.measure_peer(case, peer) if peer else self.measure_weir(case, mtu)
                row["pairs"].append(pair)
        except Failure as failure:
            row["status"] = f"failed ({side}): {failure}"
            return row
        row["peer_median"] = statistics.median(case.value(pair["peer"]) for pair in row["pairs"])
        if not self.options.peers_only:
            ratios = [case.value(pair["weir"]) / case.value(pair["peer"]) for pair in row["pairs"]]
            row["weir_median"] = statistics.median(case.value(pair["weir"]) for pair in row["pairs"])
            row.update(ratio_median=statistics.median(ratios), ratio_min=min(ratios), ratio_max=max(ratios))
        return row

    def measure_idle(self):
        """CPU of a server that has served and has nothing left to do."""
        case = Case("idle", 32, 32, 16, [])
        with self.weir_server("adaptive", None) as server:
            command = [str(self.weir), "perf", "client", *self.client_common(case, server.port), *self.reply(case),
                       "--mode", "inline", "--json"]
            run_client(command, self.options.seconds, self.environment)
            time.sleep(1)
            before, begin = process_cpu_seconds(server.process.pid), time.monotonic()
            time.sleep(5)
            used, elapsed = process_cpu_seconds(server.process.pid) - before, time.monotonic() - begin
        return 100 * used / elapsed


    def measure_handshakes(self):
        """The report of the program that holds both contestants."""
        program = self.options.build / "bench" / "handshake"
        if not os.access(program, os.X_OK):
            raise Failure("not built (install libssl-dev, then configure again)")
        command = [str(program), "--json", "--core", str(self.options.client_core)]
        command += ["--quick"] if self.options.quick else ["--pairs", str(self.options.pairs)]
        try:
            result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            raise Failure("it did not end within 600 s")
        if result.returncode != 0:
            raise Failure(f"it ended with {result.returncode}: {last_words(result.stderr)}")
        return json.loads(result.stdout)


    def measure_steps(self, mtu_name):
        program = self.options.build / "bench" / "steps"
        if not os.access(program, os.X_OK):
            raise Failure("not built (it needs Linux)")
        # Loopback's MTU is a packet for each record.
        mtu = MTUS[mtu_name] or 61_440 + 94
        command = [str(program), "--json", "--mtu", str(mtu), "--core", str(self.options.client_core)]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if result.returncode != 0:
            raise Failure(f"it ended with {result.returncode}: {last_words(result.stderr)}")
        return json.loads(result.stdout)


# ---------------------------------------------------------------------------------------------------------------------
# The report
# ---------------------------------------------------------------------------------------------------------------------


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


def run_case(bench, case, mtu_name):
    mtu = MTUS[mtu_name]
    result = {"case": case.name, "mtu": mtu_name, "request_bytes": case.request, "reply_bytes": case.reply,
              "window": case.window, "metric": case.metric, "rows": [], "goals": []}
    print(f"\n{case.name}, MTU {mtu_name}: {case.request} B requests, {case.reply} B replies, "
          f"{case.window} outstanding, client {case.client_mode}; {case.what()}")
    print(f"  {'peer':<20} {'peer':>14}" + ("" if bench.options.peers_only else f" {'weir':>16} {'weir/peer':>12}"))
    for name in case.peers if case.identity else bench.options.peers or case.peers:
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
        print(f"  {step['side']:<9} {step['step']:<24} {step['ns_per_byte']:>8.4f} ns/B {1 / step['ns_per_byte']:>8.1f} GB/s")
    return result


def aes_backend(results):
    for result in results:
        for row in result["rows"]:
            for pair in row["pairs"]:
                for key in ("aes_backend", "aes", "aead"):
                    if key in pair.get("weir", {}):
                        return pair["weir"][key]
    return "not reported"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    names = [case.name for case in CASES] + [IDLE, HANDSHAKE, STEPS]
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "bench",
                        help="the build folder (default: build/bench)")
    parser.add_argument("--weir", type=pathlib.Path, help="the weir command (default: BUILD/apps/weir/weir)")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs per comparison (default 7)")
    parser.add_argument("--quick", action="store_true", help="3 pairs of 0.5 s, and one MTU: under two minutes")
    parser.add_argument("--seconds", type=float, default=2, help="length of one run (default 2)")
    parser.add_argument("--case", dest="cases", action="append", choices=names, help="only this case; may be repeated")
    parser.add_argument("--peer", dest="peers", action="append", choices=list(PEERS),
                        help="compare with this one instead of the case's own peers; repeatable")
    parser.add_argument("--mtu", dest="mtus", action="append", choices=list(MTUS), help="only this MTU; repeatable")
    parser.add_argument("--near", action="store_true",
                        help="begin a pair when both cores share a cache, which on a virtual machine comes and goes")
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
    options.json = options.json or options.build / "results.json"
    if options.pairs < 1 or options.seconds <= 0:
        parser.error("--pairs and --seconds must be positive")
    return options


def main():
    options = parse_arguments()
    # A plain SIGTERM would leave our servers behind; this way every `with` block ends them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
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
    if not options.peers_only and (not options.cases or IDLE in options.cases):
        results.append(run_idle(bench))
    if not options.peers_only and (not options.cases or HANDSHAKE in options.cases):
        results.append(run_handshakes(bench))
    if not options.peers_only and (not options.cases or STEPS in options.cases):
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
