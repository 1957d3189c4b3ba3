"""One measurement: two processes, one of them a server, and what the other reports."""

import json
import os
import pathlib
import secrets
import statistics
import subprocess
import tempfile
import time

from cases import BROADCAST_PEERS, MTUS, NEAR_NS, NEAR_PATIENCE_S, NEAR_TRIES, OTHER_BUILD, PEERS, Case
from processes import LOOPBACK, Failure, Server, free_ports, last_words, process_cpu_seconds, run_client


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

    def weir_server(self, idle, mtu, security=(), servers=1, weir=None):
        port = free_ports("udp", servers)
        command = [str(weir or self.weir), "perf", "server", "--listen", f"{LOOPBACK}:{port}", "--core",
                   str(self.options.server_core), "--mode", "inline", "--idle", idle, "--servers", str(servers),
                   *security]
        return Server(command + (["--mtu", str(mtu)] if mtu else []), "udp", port + servers - 1, self.environment)

    def measure_weir(self, case, mtu, security=(), weir=None):
        """`weir`: the command that is both server and client; by default the one that is measured."""
        servers = BROADCAST_PEERS if case.broadcast else 1
        with self.weir_server(case.server_idle, mtu, security, servers, weir) as server:
            first = server.port - servers + 1
            command = [str(weir or self.weir), "perf", "broadcast" if case.broadcast else "client",
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
        other = self.options.against if peer_name == OTHER_BUILD else None
        label = peer.label if peer else "the other build" if other else "weir with a secret"
        row = {"peer": peer_name, "label": label, "pairs": [], "distances_ns": [], "status": "ok"}
        if peer and not self.is_built(peer):
            row["status"] = "not built" + (f" (install {peer.package}, then configure again)" if peer.package else "")
            return row
        try:
            for _ in range(self.options.pairs):
                for _ in range(NEAR_TRIES):
                    distances = [self.await_near_cores()]
                    pair = {}
                    if not self.options.peers_only:
                        side = "weir"
                        pair["weir"] = self.measure_weir(case, mtu, self.security(case))
                        distances.append(self.core_distance())
                    side = label
                    pair["peer"] = (self.measure_peer(case, peer) if peer
                                    else self.measure_weir(case, mtu, self.security(case) if other else (), other))
                    distances.append(self.core_distance())
                    farthest = max((distance for distance in distances if distance is not None), default=None)
                    if not self.options.near or farthest is None or farthest < NEAR_NS:
                        break
                row["pairs"].append(pair)
                row["distances_ns"].append(farthest)
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
