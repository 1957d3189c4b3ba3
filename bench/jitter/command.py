"""`./dev bench --case jitter`: what is sent again where packets are late or lost, over real sockets.

`weir perf relay` stands between client and server on the loopback interface and delays each packet by 0.5 to 1.5 ms in
each direction, and one in twenty by up to 1 ms more. Half of the rows lose 2 % of the packets as well. What the relay
loses or delays against its purpose is shown beside them: the share is Weir's only if that is little.
"""

import argparse
import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import tempfile
import time

from processes import LOOPBACK, Failure, free_ports, is_bound, last_words, stop, take_priority
from report import machine_facts

NETWORK = ["--delay", 0.5, "--jitter", 1, "--reorder", 0.05, "--reorder-by", 1]
MTU = 1500
LEAST_PACKETS = 100_000  # of a row, or it says little
START_S, END_S = 10, 30
# Of packets that the relay loses or sends at the wrong time; each may be sent again.
MOST_ASTRAY_SHARE = 0.0005


class Row:
    def __init__(self, name, what, size, window, loss, goal, clients, seconds):
        self.name = name
        self.what = what
        self.size = size
        self.window = window
        self.loss = loss
        self.goal = goal  # the share of bytes that are sent again is less
        self.clients = clients  # processes, each with this window
        self.seconds = seconds


ROWS = [
    Row("lone", "lone calls of 4 KiB", 4096, 1, 0, 0.005, clients=8, seconds=8),
    Row("bulk", "messages of 1 MiB, 8 under way", 1 << 20, 8, 0, 0.005, clients=1, seconds=8),
    Row("lone-loss", "lone calls of 4 KiB, 2 % lost", 4096, 1, 0.02, 0.05, clients=8, seconds=10),
    Row("bulk-loss", "messages of 1 MiB, 8 under way, 2 % lost", 1 << 20, 8, 0.02, 0.025, clients=3, seconds=10),
]


class Process:
    """A server or a relay, until the end of a `with` block; `report` is what it says in the end."""

    def __init__(self, command, port, environment):
        self.command = [str(word) for word in command]
        self.port = port
        self.environment = environment

    def __enter__(self):
        self.output = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=self.output, start_new_session=True)
        end = time.monotonic() + START_S
        while not is_bound("udp", self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                said = self.said()
                self.__exit__()
                raise Failure(f"{self.command[2]} does not listen: {last_words(said)}")
            time.sleep(0.02)
        return self

    def said(self):
        self.output.seek(0)
        return self.output.read()

    def finish(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=START_S)
        return self.said()

    def __exit__(self, *_):
        stop(self.process)
        self.output.close()


def run_clients(commands, seconds, environment):
    """Side by side; their reports."""
    with contextlib.ExitStack() as stack:
        processes = []
        for command in commands:
            process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stack.callback(stop, process)
            processes.append(process)
        reports = []
        for process in processes:
            try:
                output, errors = process.communicate(timeout=seconds + END_S)
            except subprocess.TimeoutExpired:
                raise Failure(f"a client did not end within {seconds + END_S:.0f} s")
            if process.returncode != 0:
                raise Failure(f"a client ended with {process.returncode}: {last_words(errors or output)}")
            reports.append(json.loads(output[output.index("{"):]))
        return reports


def measure(row, weir, environment):
    port, relay_port = free_ports("udp", 1), free_ports("udp", 1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(Process([weir, "perf", "server", "--listen", f"{LOOPBACK}:{port}", "--mode", "inline", "--mtu",
                                     MTU], port, environment))
        relay = stack.enter_context(Process([weir, "perf", "relay", "--listen", f"{LOOPBACK}:{relay_port}", "--to",
                                             f"{LOOPBACK}:{port}", *NETWORK, "--loss", row.loss, "--json"], relay_port,
                                            environment))
        client = [weir, "perf", "client", "--peer", f"{LOOPBACK}:{relay_port}", "--window", row.window, "--size", row.size,
                  "--reply", 64, "--seconds", row.seconds, "--mtu", MTU, "--idle", "adaptive", "--json"]
        reports = run_clients([client] * row.clients, row.seconds, environment)
        said = relay.finish()
        became = json.loads(said[said.index("{"):])
    sent = {name: sum(report[name] for report in reports) for name in
            ("calls", "bytes_sent", "bytes_retransmitted", "packets_sent", "packets_received")}
    relayed = became["passed_on"] + became["lost_on_purpose"]
    astray = became["lost_in_full_sockets"] + became["lost_otherwise"] + became["tardy"]
    share = sent["bytes_retransmitted"] / max(sent["bytes_sent"], 1)
    return {"name": row.name, "what": row.what, "clients": row.clients, "goal": row.goal, **sent, "relay": became,
            "packets": relayed, "retransmitted_share": share, "astray_share": astray / max(relayed, 1),
            "lost_share": became["lost_on_purpose"] / max(relayed, 1), "met": share < row.goal}


COLUMNS = (f"{'':<42} {'packets':>9} {'lost on purpose':>17} {'in full sockets':>16} {'otherwise':>10} "
           f"{'late by > 0.5 ms':>17} {'sent again':>11}")


def line(found):
    relay = found["relay"]
    tardy = f"{relay['tardy']:,} ({relay['most_tardy_ms']:.1f} ms)"
    lost = f"{relay['lost_on_purpose']:,} {found['lost_share']:.2%}"
    text = (f"{found['what']:<42} {found['packets']:>9,} {lost:>17} {relay['lost_in_full_sockets']:>16,} "
            f"{relay['lost_otherwise']:>10,} {tardy:>17} {found['retransmitted_share']:>11.3%}  "
            f"{'met' if found['met'] else 'MISSED'}: under {found['goal']:.1%}")
    if found["packets"] < LEAST_PACKETS:
        text += f"  (fewer than {LEAST_PACKETS:,} packets)"
    if found["astray_share"] > MOST_ASTRAY_SHARE:
        text += "  (the relay was not punctual: the share is not Weir's alone)"
    return text


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench --case jitter", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "bench",
                        help="the build folder (default: build/bench)")
    parser.add_argument("--weir", type=pathlib.Path, help="the weir command (default: BUILD/apps/weir/weir)")
    parser.add_argument("--only", action="append", choices=[row.name for row in ROWS], help="only this row; repeatable")
    parser.add_argument("--ordinary", action="store_true", help="without real-time priority, which root has")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="where all figures are written (default: BUILD/jitter.json)")
    options = parser.parse_args(arguments)
    options.weir = options.weir or options.build / "apps" / "weir" / "weir"
    options.json = options.json or options.build / "jitter.json"
    return options


def main(arguments):
    options = parse_arguments(arguments)
    facts = machine_facts()
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    if not options.ordinary:
        take_priority()
    environment = {**os.environ, "WEIR_SECRET": secrets.token_hex(32)}
    results, failed = [], False
    print(COLUMNS)
    for row in ROWS:
        if options.only and row.name not in options.only:
            continue
        try:
            results.append(measure(row, options.weir, environment))
        except Failure as failure:
            print(f"{row.what:<42} failed: {failure}", flush=True)
            failed = True
            continue
        print(line(results[-1]), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    print(f"all figures: {options.json}")
    return 1 if failed or (options.check and not all(found["met"] for found in results)) else 0
