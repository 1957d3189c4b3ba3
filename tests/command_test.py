#!/usr/bin/env python3
"""The weir command as its users meet it: what it prints, where, and how it exits.

    command_test.py WEIR [GROUP]
"""
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import termios
import unittest

WEIR = None
LOOPBACK = "127.0.0.1"
SECRET = "a secret that both sides know"
PATIENCE_S = 60  # for things that should take one or two seconds


def environment(secret=SECRET):
    variables = {name: value for name, value in os.environ.items() if name != "WEIR_SECRET"}
    if secret is not None:
        variables["WEIR_SECRET"] = secret
    return variables


def weir(*arguments, secret=SECRET):
    return subprocess.run([WEIR, *map(str, arguments)], env=environment(secret), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE_S)


@contextlib.contextmanager
def server(*arguments, secret=SECRET, host=LOOPBACK, command=None, **variables):
    """A perf server on a port of its own choice; gives its process, with .address."""
    process = subprocess.Popen([*(command or [WEIR]), "perf", "server", "--listen", f"{host}:0", *arguments],
                               env=environment(secret) | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=bool(variables))
    try:
        line = process.stdout.readline()
        found = re.match(rf"listening on ({re.escape(host)}:\d+(?:,{re.escape(host)}:\d+)*)", line)
        if not found:
            process.kill()
            raise AssertionError(f"the server said {line!r} and {process.communicate()[1]!r}")
        process.addresses = found.group(1).split(",")
        process.address = process.addresses[0]
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def without_rights():
    """What to put before a command so that it has no right that root has, and not root's user either."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all",
            "--bounding-set=-all"]


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def threads_of(process):
    """The names of a process's threads, and the cores that each may run on."""
    names, cores = [], []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        names.append((task / "comm").read_text().strip())
        cores.append(re.search(r"(?m)^Cpus_allowed_list:\s*(\S+)$", (task / "status").read_text()).group(1))
    return names, cores


class Relay:
    """Between one client and a server: passes datagrams on, except each nth of either way. A context."""

    def __init__(self, to, drop_every):
        host, port = to.rsplit(":", 1)
        self.to, self.drop_every, self.seen, self.dropped = (host, int(port)), drop_every, 0, 0
        self.front, self.back = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for end in self.front, self.back:
            end.bind((LOOPBACK, 0))
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.address = f"{LOOPBACK}:{self.front.getsockname()[1]}"
        self.wake, self.woken = socket.socketpair()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        client, passed = None, {self.front: 0, self.back: 0}
        while True:
            ready = select.select([self.front, self.back, self.woken], [], [])[0]
            if self.woken in ready:
                return
            for end in ready:
                datagram, source = end.recvfrom(65536)
                client = source if end is self.front else client
                self.seen += 1
                passed[end] += 1
                if passed[end] % self.drop_every == 0:
                    self.dropped += 1
                elif end is self.front:
                    self.back.sendto(datagram, self.to)
                else:
                    self.front.sendto(datagram, client)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.wake.send(b"x")
        self.thread.join()
        for end in self.front, self.back, self.wake, self.woken:
            end.close()


class Case(unittest.TestCase):
    def expect_success(self, result):
        self.assertEqual(result.returncode, 0, f"stdout: {result.stdout}\nstderr: {result.stderr}")

    def expect_sentence(self, result, *words, code=1):
        self.assertEqual(result.returncode, code, f"stdout: {result.stdout}\nstderr: {result.stderr}")
        for word in words:
            self.assertIn(word, result.stderr)


class Usage(Case):
    def test_version_is_one_line(self):
        result = weir("--version")
        self.expect_success(result)
        self.assertRegex(result.stdout, r"^weir \d+\.\d+\.\d+\n$")

    def test_help_explains_every_command(self):
        for command in [], ["demo"], ["perf"], ["perf", "server"], ["perf", "client"], ["perf", "put"], ["perf", "get"], \
                ["perf", "broadcast"], ["cp"], ["serve-files"], ["doctor"], ["sim"], ["identity"], \
                ["identity", "new-ca"], ["identity", "issue"], ["identity", "show"]:
            result = weir(*command, "--help")
            self.expect_success(result)
            self.assertIn("Usage: weir", result.stdout)

    def test_misuse_is_told_on_stderr(self):
        for arguments in [], ["dance"], ["perf"], ["perf", "client"], ["doctor", "--loud"]:
            result = weir(*arguments)
            self.expect_sentence(result, "weir: ", "--help", code=2)
            self.assertEqual(result.stdout, "")

    def test_a_wrong_word_is_named_and_what_there_is_is_told(self):
        for arguments, words in (
                (["bogus"], ['there is no command "weir bogus"', "demo", "perf", "doctor", "identity", "Try `weir --help`"]),
                ([], ["weir needs a command", "demo", "perf"]),
                (["perf", "bogus"], ['there is no command "weir perf bogus"', "server, client", "Try `weir perf --help`"]),
                (["perf", "client", "--mode", "foo"], ["--mode", '"foo"', "inline|threads", "Try `weir perf client --help`"]),
                (["perf", "server", "--listen", f"{LOOPBACK}:0", "--idle", "foo"], ["--idle", '"foo"', "spin|adaptive"]),
                (["perf", "client", "--peer", f"{LOOPBACK}:9", "--windw", "3"], ["weir perf client has no option --windw"]),
                (["perf", "client", "--peer", f"{LOOPBACK}:9", "more"], ['weir perf client takes no "more"']),
                (["perf", "client"], ["--peer is required"])):
            with self.subTest(arguments=arguments):
                result = weir(*arguments)
                self.expect_sentence(result, *words, code=2)
                self.assertEqual(len(result.stderr.splitlines()), 2, result.stderr)

    def test_numbers_out_of_range_are_refused(self):
        peer = ["perf", "client", "--peer", f"{LOOPBACK}:1"]
        for option in ["--window", "0"], ["--size", str(1 << 32)], ["--mode", "sideways"], ["--mtu", "100"]:
            self.expect_sentence(weir(*peer, *option), option[0], code=2)
        self.expect_sentence(weir(*peer, "--seconds", 1, "--count", 1), "excludes", code=2)
        for pattern, fewest in ("put", 1), ("get", 1), ("broadcast", 4):
            self.assertIn(f"[{fewest} - ", weir("perf", pattern, "--help").stdout)
            self.expect_sentence(weir("perf", pattern, "--peer", f"{LOOPBACK}:1", "--size", fewest - 1), "--size", code=2)


class Doctor(Case):
    def test_says_what_each_trouble_costs(self):
        result = weir("doctor")
        self.expect_success(result)
        self.assertRegex(result.stdout, r"(?m)^(ok|slow)\s+AES\s")
        slow = len(re.findall(r"(?m)^slow ", result.stdout))
        self.assertEqual(slow, result.stdout.count("costs: "))

    def test_json_agrees_with_strict(self):
        result = weir("doctor", "--json")
        self.expect_success(result)
        report = json.loads(result.stdout)
        names = [check["name"] for check in report["checks"]]
        for name in ("receive buffer", "send buffer", "send offload (GSO)", "receive offload (GRO)", "AES",
                     "memory maps", "descriptors", "locked memory", "huge pages", "isolated cores", "clock source", "cores"):
            self.assertIn(name, names)
        for check in report["checks"]:
            self.assertEqual(check["ok"], check["costs"] == "", check)
            self.assertEqual(check["ok"], check["mend"] == "", check)
        self.assertEqual(report["ok"], all(check["ok"] for check in report["checks"]))
        self.assertEqual(weir("doctor", "--strict").returncode, 0 if report["ok"] else 1)


class Perf(Case):
    def check_report(self, result, size, reply):
        self.expect_success(result)
        report = json.loads(result.stdout)
        self.assertEqual(report["errors"], 0)
        self.assertGreater(report["calls"], 0)
        self.assertAlmostEqual(report["calls_per_s"], report["calls"] / report["seconds"],
                               delta=0.01 * report["calls_per_s"] + 1)
        # Not calls_per_s, which is rounded: large messages are few.
        self.assertAlmostEqual(report["payload_bytes_per_s"], report["calls"] / report["seconds"] * (size + reply),
                               delta=0.01 * report["payload_bytes_per_s"] + 1000)
        latency = report["latency_us"]
        self.assertGreater(latency["p50"], 0)
        self.assertEqual(sorted([latency["p50"], latency["p90"], latency["p99"], latency["p999"], latency["max"]]),
                         [latency["p50"], latency["p90"], latency["p99"], latency["p999"], latency["max"]])
        self.assertGreaterEqual(report["cpu_s"], 0)  # a short run may take less than the clock's tick
        for name in "bytes_sent", "packets_sent", "mtu":
            self.assertGreater(report[name], 0, name)
        self.check_wire(report, size)
        self.assertIsInstance(report["aes_backend"], str)
        self.assertIsInstance(report["link"], str)
        # What went over the wire was at least the payload.
        self.assertGreaterEqual(report["bytes_sent"], report["calls"] * size)
        return report

    def check_wire(self, report, size):
        """That the figures about packets and bytes agree with each other."""
        self.assertGreaterEqual(report["packets_control_only"], 0)
        self.assertLessEqual(report["packets_control_only"], report["packets_sent"])
        self.assertLessEqual(report["packets_lost"], report["packets_sent"])
        self.assertLess(report["bytes_retransmitted"], report["bytes_sent"])
        # Useful bytes of all bytes. What was outstanding at the beginning or the end may be counted or not.
        self.assertAlmostEqual(report["goodput"], report["calls"] * size / report["bytes_sent"],
                               delta=report["window"] * size / report["bytes_sent"] + 0.001)
        self.assertLess(report["goodput"], 1)

    def test_sweeps_over_sizes_and_windows(self):
        sizes, windows = [32, 16384, 20480], [1, 8]
        with server() as peer:
            arguments = ("perf", "client", "--peer", peer.address, "--sweep", "--sizes", ",".join(map(str, sizes)),
                         "--windows", ",".join(map(str, windows)), "--count", 200)
            result = weir(*arguments, "--json")
            self.expect_success(result)
            runs = json.loads(result.stdout)["runs"]
            self.assertEqual([(run["request_bytes"], run["window"]) for run in runs],
                             [(size, window) for size in sizes for window in windows])
            for run in runs:
                self.assertEqual((run["calls"], run["errors"]), (200, 0))
                self.assertGreater(run["goodput"], 0)
            table = weir(*arguments)
            self.expect_success(table)
            lines = table.stdout.splitlines()
            self.assertEqual(len(lines), 1 + len(runs))
            self.assertIn("goodput", lines[0])
            self.assertIn("16,384 B", lines[3])
            self.expect_sentence(weir("perf", "client", "--peer", peer.address, "--sizes", "32"), "--sweep", code=2)

    def test_counts_what_was_lost_and_sent_again(self):
        """Through a relay that drops one datagram in ten, each way."""
        with server() as peer, Relay(peer.address, drop_every=10) as relay:
            result = weir("perf", "client", "--peer", relay.address, "--window", 16, "--size", 4000, "--count", 2000,
                          "--mtu", 1500, "--json")
            lossy = self.check_report(result, 4000, 32)
            self.assertGreater(relay.dropped, 20)
            for name in "packets_lost", "frames_retransmitted", "bytes_retransmitted":
                self.assertGreater(lossy[name], 20, name)
            self.assertLess(lossy["packets_lost"], relay.seen)
            self.assertLess(lossy["goodput"], 0.93)

    @contextlib.contextmanager
    def perf_relay(self, to, *arguments):
        """`weir perf relay`: gives its process, with .address; .report is there afterwards."""
        process = subprocess.Popen([WEIR, "perf", "relay", "--listen", f"{LOOPBACK}:0", "--to", to, *map(str, arguments),
                                    "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        try:
            process.address = process.stdout.readline().removeprefix("listening on ").strip()
            yield process
            process.terminate()
            output, errors = process.communicate(timeout=PATIENCE_S)
            self.assertEqual((process.returncode, errors), (0, ""))
            process.report = json.loads(output)
        finally:
            process.kill()
            process.communicate()

    def test_relay_counts_what_it_loses_as_it_was_asked_to(self):
        with server() as peer, self.perf_relay(peer.address, "--loss", 0.1, "--reorder", 0.5) as relay:
            result = weir("perf", "client", "--peer", relay.address, "--size", 4000, "--window", 4, "--count", 300, "--mtu",
                          1500, "--json")
            report = self.check_report(result, 4000, 32)
        relayed = relay.report
        self.assertGreater(relayed["passed_on"], 300)
        self.assertGreater(relayed["reordered"], 100)
        self.assertGreater(relayed["lost_on_purpose"], 50)
        self.assertLess(relayed["lost_on_purpose"], relayed["passed_on"] / 4)
        self.assertGreater(report["packets_lost"], 10)
        self.assertEqual((relayed["lost_in_full_sockets"], relayed["lost_otherwise"]), (0, 0))

    @unittest.skipUnless(sys.platform == "linux", "only Linux says what a full socket dropped")
    def test_relay_counts_what_it_had_no_room_for_apart_from_what_it_loses_on_purpose(self):
        """While it is stopped, it gets more than a socket holds."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
            target.bind((LOOPBACK, 0))
            with self.perf_relay(f"{LOOPBACK}:{target.getsockname()[1]}") as relay:
                relay.send_signal(signal.SIGSTOP)
                host, port = relay.address.split(":")
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:
                    for _ in range(1500):
                        flood.sendto(bytes(60_000), (host, int(port)))
                    relay.send_signal(signal.SIGCONT)
                    target.recv(65_536)
        report = relay.report
        self.assertGreater(report["lost_in_full_sockets"], 100)
        self.assertGreater(report["passed_on"], 0)
        self.assertEqual(report["lost_on_purpose"], 0)
        self.assertLessEqual(report["passed_on"] + report["lost_in_full_sockets"] + report["lost_otherwise"], 1500)

    def test_who_only_receives_sends_little_but_acknowledgements(self):
        """Many bytes come for each that goes."""
        with server() as peer:
            for mode in "inline", "threads":
                result = weir("perf", "get", "--peer", peer.address, "--window", 1, "--size", 20 << 20, "--count", 3,
                              "--mode", mode, "--json")
                self.expect_success(result)
                report = json.loads(result.stdout)
                self.assertGreater(report["bytes_received"], 60 << 20)
                self.assertGreater(report["packets_received"], (60 << 20) // 65507)
                self.assertGreater(report["packets_control_only"], 10)
                self.assertLessEqual(report["packets_control_only"], report["packets_sent"])
                result = weir("perf", "client", "--peer", peer.address, "--window", 1, "--size", 32, "--reply", 3 << 20,
                              "--count", 20, "--mode", mode, "--json")
                report = self.check_report(result, 32, 3 << 20)
                self.assertGreater(report["packets_control_only"], report["packets_sent"] // 2)

    @unittest.skipUnless(pathlib.Path("/proc/self/task").exists(), "nothing says where threads may run")
    def test_runs_on_the_core_and_with_the_workers_that_it_was_given(self):
        with server() as peer:
            report = self.check_report(weir("perf", "client", "--peer", peer.address, "--count", 100, "--json"), 32, 32)
            if "portable" in report["link"]:
                self.skipTest("built for systems that neither name threads nor bind them to cores")
        core = max(os.sched_getaffinity(0))
        with server("--core", str(core), "--mode", "threads", "--workers", "2") as peer:
            names, cores = threads_of(peer.pid)
            self.assertEqual(sorted(name for name in names if name.startswith("weir-worker")),
                             ["weir-worker-0", "weir-worker-1"])
            self.assertEqual(set(cores), {str(core)})
            self.check_report(weir("perf", "client", "--peer", peer.address, "--count", 100, "--json"), 32, 32)
            for mode in "inline", "threads":
                client = subprocess.Popen([WEIR, "perf", "client", "--peer", peer.address, "--core", str(core), "--mode",
                                           mode, "--seconds", "30", "--interval", "0.1"], env=environment(),
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
                try:
                    while "calls/s" not in client.stdout.readline():  # then it calls
                        self.assertIsNone(client.poll())
                    client.stdout.readline()
                    self.assertEqual(set(threads_of(client.pid)[1]), {str(core)})
                finally:
                    client.kill()
                    client.communicate()
        with server("--mode", "threads") as peer:
            if len(os.sched_getaffinity(0)) > 1:
                self.assertNotEqual(set(threads_of(peer.pid)[1]), {str(core)})
        self.expect_sentence(weir("perf", "client", "--peer", f"{LOOPBACK}:9", "--core", 4000, "--count", 1), "core 4000")

    def test_says_which_cipher_and_link_it_was_told_to_use(self):
        with server("--openssl", "--portable") as peer:
            client = ["perf", "client", "--peer", peer.address, "--count", 1000, "--json"]
            usual = self.check_report(weir(*client), 32, 32)
            told = self.check_report(weir(*client, "--openssl", "--portable"), 32, 32)
            self.assertIn("openssl", told["aes_backend"].lower())
            self.assertIn("portable", told["link"])
            self.assertTrue(usual["link"] != told["link"] or "portable" in usual["link"])  # built with no other

    def test_what_the_warm_up_does_is_not_counted(self):
        def run(*options):
            with server() as peer:
                result = weir("perf", "client", "--peer", peer.address, "--window", 4, "--seconds", 0.3, "--json",
                              *options)
                report = self.check_report(result, 32, 32)
                peer.send_signal(signal.SIGTERM)
                answered = int(re.search(r"answered ([\d,]+) requests", peer.stdout.read()).group(1).replace(",", ""))
                return report, answered
        report, answered = run("--warm-up", "0")
        self.assertLessEqual(answered - report["calls"], 2 * 4)
        report, answered = run("--warm-up", "0.5")
        self.assertGreater(answered - report["calls"], 2 * 4)

    def test_each_mode_of_client_and_server(self):
        for server_mode in "inline", "threads":
            for client_mode in "inline", "threads":
                with self.subTest(server=server_mode, client=client_mode), server("--mode", server_mode) as peer:
                    result = weir("perf", "client", "--peer", peer.address, "--window", 64, "--size", 100, "--reply",
                                  200, "--seconds", 0.5, "--mode", client_mode, "--json")
                    self.check_report(result, 100, 200)

    def test_finds_the_mtu_of_loopback(self):
        with server() as peer:
            for mode in "inline", "threads":
                result = weir("perf", "client", "--peer", peer.address, "--seconds", 1, "--mode", mode, "--json")
                self.assertGreater(self.check_report(result, 32, 32)["mtu"], 60_000)

    @unittest.skipUnless(os.geteuid() != 0 or shutil.which("setpriv"), "no way to give up root's rights")
    def test_needs_no_rights(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as text:
            # Where anybody may run it; the tree need not be such a place.
            folder = pathlib.Path(text)
            folder.chmod(0o755)
            program = shutil.copy(WEIR, folder / "weir")
            # A socket gets no more than the system's limit then, and is told so.
            limits = [pathlib.Path("/proc/sys/net/core") / name for name in ("rmem_max", "wmem_max")]
            is_clamped = any(limit.exists() and int(limit.read_text()) < 16 << 20 for limit in limits)
            command = [*without_rights(), program]
            with server(command=command) as peer:
                for mode in "inline", "threads":
                    result = subprocess.run([*command, "perf", "client", "--peer", peer.address, "--count", "1000",
                                             "--json", "--mode", mode], env=environment(), stdin=subprocess.DEVNULL,
                                            capture_output=True, text=True, timeout=PATIENCE_S)
                    self.check_report(result, 32, 32)
                    self.assertEqual(is_clamped, "net.core.rmem_max" in result.stderr, result.stderr)
            folder.chmod(0o777)  # its identity for this machine goes here
            result = subprocess.run([*command, "demo", "--seconds", "0.2", "--peers", "10", "--calls", "100"],
                                    env=environment(None) | {"TMPDIR": text}, stdin=subprocess.DEVNULL,
                                    capture_output=True, text=True, timeout=PATIENCE_S)
            self.expect_success(result)
            self.assertIn("Every call was answered once", result.stdout)

    def test_counts_exactly_as_many_calls_as_asked(self):
        with server() as peer:
            for mode in "inline", "threads":
                result = weir("perf", "client", "--peer", peer.address, "--window", 7, "--count", 1000, "--mode", mode,
                              "--json")
                self.assertEqual(self.check_report(result, 32, 32)["calls"], 1000)
            result = weir("perf", "client", "--peer", peer.address, "--window", 100, "--count", 1, "--json")
            report = self.check_report(result, 32, 32)
            self.assertEqual((report["calls"], report["latency_us"]["samples"]), (1, 1))

    def test_sizes_from_nothing_to_the_largest(self):
        with server() as peer:
            for size, reply in (0, 0), (3, 5), (4, 0), (0, 16380), (16380, 0), (5000, 16380):
                result = weir("perf", "client", "--peer", peer.address, "--window", 4, "--size", size, "--reply", reply,
                              "--count", 200, "--json")
                self.expect_success(result)
                self.assertEqual(json.loads(result.stdout)["calls"], 200)

    def test_large_messages_either_way_in_each_mode(self):
        for mode in "inline", "threads":
            with server("--mode", mode) as peer:
                for size, reply in (16381, 0), (65536, 64), (3 << 20, 64), (64, 1 << 20), (0, 70000), (1 << 20, 1 << 20):
                    with self.subTest(mode=mode, size=size, reply=reply):
                        result = weir("perf", "client", "--peer", peer.address, "--window", 8, "--size", size, "--reply",
                                      reply, "--count", 20, "--mode", mode, "--json")
                        self.assertEqual(self.check_report(result, size, reply)["calls"], 20)

    def test_larger_than_usual_needs_a_server_that_takes_it(self):
        size = (64 << 20) + 1
        client = ["perf", "client", "--mode", "threads", "--size", size, "--count", 2, "--json"]
        with server() as peer:
            self.expect_sentence(weir(*client, "--peer", peer.address), "too_large")
        with server("--largest", str(size)) as peer:
            self.check_report(weir(*client, "--peer", peer.address), size, 32)

    def test_put_get_and_broadcast(self):
        for mode in "inline", "threads":
            with server("--servers", "3", "--mode", mode) as peer:
                for pattern, peers in ("put", 1), ("get", 1), ("broadcast", 3):
                    for size in 100, 5 << 20:
                        with self.subTest(mode=mode, pattern=pattern, size=size):
                            addresses = ",".join(peer.addresses[:peers])
                            result = weir("perf", pattern, "--peer", addresses, "--window", 2, "--size", size, "--count",
                                          10, "--mode", mode, "--json")
                            self.expect_success(result)
                            report = json.loads(result.stdout)
                            self.assertEqual((report["pattern"], report["calls"], report["errors"]), (pattern, 10, 0))
                            self.assertAlmostEqual(report["payload_bytes_per_s"],
                                                   report["calls"] / report["seconds"] * size * peers,
                                                   delta=0.01 * report["payload_bytes_per_s"] + 1000)

    def test_packets_stay_within_an_ethernet_mtu(self):
        with server("--mtu", "1500") as peer:
            result = weir("perf", "client", "--peer", peer.address, "--window", 16, "--size", 4096, "--reply", 64,
                          "--count", 5000, "--mtu", 1500, "--json")
            report = self.check_report(result, 4096, 64)
            self.assertLessEqual(report["mtu"], 1500)
            self.assertLessEqual(report["bytes_sent"] / report["packets_sent"], 1472)

    def test_several_servers_share_the_calls(self):
        with server() as first, server() as second:
            result = weir("perf", "client", "--peer", f"{first.address},{second.address}", "--window", 10, "--count",
                          1000, "--json")
            self.check_report(result, 32, 32)
            answered = []
            for process in first, second:
                process.send_signal(signal.SIGTERM)
                output = process.stdout.read()
                process.wait(timeout=PATIENCE_S)
                answered.append(int(re.search(r"answered ([\d,]+) requests", output).group(1).replace(",", "")))
            self.assertEqual(sum(answered), 1000)
            self.assertGreater(min(answered), 0)

    def test_lines_while_it_runs_and_a_summary(self):
        with server() as peer:
            result = weir("perf", "client", "--peer", peer.address, "--size", 16000, "--seconds", 1, "--interval",
                          0.25)
            self.expect_success(result)
            # When, calls, bytes, two latencies, and what was sent again.
            lines = re.findall(r"(?m)^ *(\d+\.\d\d)-(\d+\.\d\d) +([\d.]+(?: [kM])?) +([\d.]+) MB/s +[\d.]+ [mu]?s +[\d.]+ [mu]?s"
                               r" +[\d,]+ frames?, ", result.stdout)
            self.assertGreaterEqual(len(lines), 3, result.stdout)
            for begin, end, _, _ in lines:
                self.assertGreater(float(end), float(begin))
            self.assertTrue(any(float(calls.rstrip(" kM")) > 0 and float(megabytes) > 0 for _, _, calls, megabytes in lines))
            self.assertIn("p99.9", result.stdout)
            self.assertIn("goodput", result.stdout)

    def issue(self, folder, *names):
        """A folder with a certificate for each name, all of one authority."""
        self.expect_success(weir("identity", "new-ca", folder / "ca"))
        for name in names:
            kind = "--address" if name[0].isdigit() else "--name"
            self.expect_success(weir("identity", "issue", folder / "ca", kind, name, "--out", folder / name))

    def test_with_identities(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as text:
            folder = pathlib.Path(text)
            self.issue(folder, "db7.example", LOOPBACK)
            own = ["--identity", folder / LOOPBACK]
            for mode in "inline", "threads":
                # The certificate proves the address, or the name that was asked for.
                with server("--identity", folder / LOOPBACK, "--mode", mode) as peer:
                    result = weir("perf", "client", "--peer", peer.address, "--count", 1000, "--mode", mode, "--json",
                                  *own)
                    self.assertEqual(self.check_report(result, 32, 32)["security"], "identity")
                with server("--identity", folder / "db7.example", "--mode", mode, secret=None) as peer:
                    client = ["perf", "client", "--peer", peer.address, "--count", 1000, "--mode", mode, "--json", *own]
                    self.check_report(weir(*client, "--name", "db7.example", secret=None), 32, 32)
                    self.expect_sentence(weir(*client, secret=None), "unauthenticated", "db7.example")
                    self.expect_sentence(weir(*client, "--name", "db8.example", secret=None), "unauthenticated",
                                         "db8.example")

    def test_with_a_development_identity(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as folder:
            for options in ["--development"], ["--development", str(pathlib.Path(folder, "shared"))]:
                with server(*options, secret=None) as peer:
                    result = weir("perf", "client", "--peer", peer.address, "--count", 1000, "--json", *options,
                                  secret=None)
                    self.assertEqual(self.check_report(result, 32, 32)["security"], "development")
                    self.assertIn("development", result.stderr)

    def test_development_directories_do_not_pile_up(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as folder:
            # Each in a session of its own, as terminals and scripts start them.
            for _ in range(3):
                with server("--development", secret=None, TMPDIR=folder) as peer:
                    result = subprocess.run([WEIR, "perf", "client", "--peer", peer.address, "--count", "10", "--json",
                                             "--development"], env=environment(None) | {"TMPDIR": folder},
                                            stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                            timeout=PATIENCE_S, start_new_session=True)
                    self.check_report(result, 32, 32)
            self.assertEqual(os.listdir(folder), [f"weir-{os.geteuid()}"])

    @unittest.skipUnless(has_ipv6(), "no IPv6 on this machine")
    def test_ipv6(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as folder:
            for options in [], ["--development", folder + "/shared"]:
                secret = None if options else SECRET
                for mode in "inline", "threads":
                    with server(*options, "--mode", mode, secret=secret, host="[::1]") as peer:
                        result = weir("perf", "client", "--peer", peer.address, "--count", 1000, "--mode", mode, "--mtu",
                                      1500, "--size", 4096, "--json", *options, secret=secret)
                        report = self.check_report(result, 4096, 32)
                        self.assertLessEqual(report["mtu"], 1500)
        self.expect_sentence(weir("perf", "client", "--peer", f"[::1]:9,{LOOPBACK}:9", "--count", 1), "IPv4", "IPv6",
                             code=2)

    def test_server_ends_well_when_told_to(self):
        for mode in "inline", "threads":
            for number in signal.SIGINT, signal.SIGTERM:
                with server("--mode", mode) as peer:
                    peer.send_signal(number)
                    self.assertEqual(peer.wait(timeout=PATIENCE_S), 0)
        with server("--seconds", "0.2") as peer:
            self.assertEqual(peer.wait(timeout=PATIENCE_S), 0)


class Failures(Case):
    def client(self, address, *arguments, **keywords):
        return weir("perf", "client", "--peer", address, "--count", 1, *arguments, **keywords)

    def test_no_secret_and_no_identity_says_what_there_is(self):
        for result in (self.client(f"{LOOPBACK}:9", secret=None),
                       weir("perf", "server", "--listen", f"{LOOPBACK}:0", secret=None)):
            self.expect_sentence(result, "WEIR_SECRET", "--identity", "--development", code=2)

    def test_two_ways_to_know_each_other_are_refused(self):
        two = ["--secret", SECRET, "--development"], ["--secret", SECRET, "--identity", "."], \
            ["--identity", ".", "--development"]
        for options in two:
            self.expect_sentence(self.client(f"{LOOPBACK}:9", *options, secret=None), "only one", "--secret",
                                 "--identity", "--development", code=2)
        self.expect_sentence(self.client(f"{LOOPBACK}:9", "--name", "a.example"), "--name", "--identity", code=2)

    def test_an_identity_that_is_not_there(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as folder:
            listen = ["perf", "server", "--listen", f"{LOOPBACK}:0"]
            self.expect_sentence(weir(*listen, "--identity", folder), "node.crt")
            self.expect_sentence(weir(*listen, "--identity", pathlib.Path(folder, "nowhere")), "--identity", code=2)

    def test_a_short_secret_is_refused(self):
        self.expect_sentence(weir("perf", "server", "--listen", f"{LOOPBACK}:0", secret="short"), "secret", code=2)

    def test_addresses_that_make_no_sense(self):
        self.expect_sentence(self.client("nonsense"), "nonsense", code=2)
        self.expect_sentence(weir("perf", "server", "--listen", "nonsense"), "nonsense", code=2)

    def test_a_port_that_is_taken(self):
        with server() as peer:
            self.expect_sentence(weir("perf", "server", "--listen", peer.address), "in use")

    def test_nobody_there(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((LOOPBACK, 0))  # somebody who never answers
            address = f"{LOOPBACK}:{taken.getsockname()[1]}"
            for mode in "inline", "threads":
                result = self.client(address, "--mode", mode, "--json")
                self.expect_sentence(result, address, "peer_failed")
                self.assertEqual(result.stderr.count(address), 1)
                self.assertRegex(json.loads(result.stdout)["error"], rf"^peer_failed: {address}: .")
            # With an identity another sentence comes, which names the address itself.
            result = weir("perf", "client", "--peer", address, "--development", "--count", 1, secret=None)
            self.expect_sentence(result, f"weir: peer_failed: {address}: ")
            self.assertEqual(result.stderr.count(address), 1)
        self.expect_sentence(self.client(address), address)  # nobody has the port any more

    def test_another_secret(self):
        with server(secret="what only the server knows") as peer:
            self.expect_sentence(self.client(peer.address), peer.address, "secret")

    def test_a_run_in_which_nothing_succeeded_shows_no_figures(self):
        with server("--largest", "1000") as peer:
            result = weir("perf", "put", "--peer", peer.address, "--size", 100000, "--seconds", 5)
            self.expect_sentence(result, "1 put failed, the first with: too_large")
            self.assertRegex(result.stdout, r"(?m)^putting 97\.7 KiB to 1 peer, 1 at a time, ")
            self.assertNotRegex(result.stdout, r"latency|goodput|puts in")

    def test_a_get_beyond_what_is_there_fails_before_anything_is_fetched(self):
        with server("--largest", "100000") as peer:
            result = weir("perf", "get", "--peer", peer.address, "--size", 100001, "--json")
            self.expect_sentence(result, "too_large", peer.address, "--largest 100001")
            self.assertEqual(list(json.loads(result.stdout)), ["error"])
            self.expect_success(weir("perf", "get", "--peer", peer.address, "--size", 100000, "--count", 1))

    def test_an_error_in_json_is_the_sentence_itself(self):
        # Of several lines.
        result = weir("perf", "client", "--peer", LOOPBACK + ":1", "--json", secret=None)
        self.assertEqual(result.returncode, 2)
        sentence = json.loads(result.stdout)["error"]
        self.assertEqual(result.stderr, f"weir: {sentence}\n")
        self.assertGreater(sentence.count("\n"), 2)
        # With anything that an argument can be.
        for address in (bytes(range(1, 128)), bytes(range(128, 256)), "\u00e4\u20ac\U0001f600".encode(),
                        b"\xed\xa0\x80", b"\xc2\x9b2J"):
            result = subprocess.run([WEIR, "perf", "client", "--json", "--peer", address], env=environment(),
                                    stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
            self.assertNotEqual(result.returncode, 0)
            report = json.loads(result.stdout.decode("utf-8"))
            self.assertEqual(list(report), ["error"])
            self.assertNotRegex(result.stdout.rstrip(b"\n"), rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]")
            self.assertNotIn("\\x", report["error"])

    def test_json_has_the_first_error_of_a_run(self):
        with server("--largest", "1000") as peer:
            result = weir("perf", "put", "--peer", peer.address, "--size", 100000, "--seconds", 5, "--json")
            self.expect_sentence(result, "1 put failed, the first with: too_large")
            report = json.loads(result.stdout)
            self.assertEqual((report["errors"], report["interrupted"]), (1, False))
            self.assertTrue(report["error"].startswith("too_large: "), report["error"])

    def interrupted(self, *arguments, after=None):
        """Ended by Ctrl-C: when it has printed a line about a time, or after so many seconds."""
        process = subprocess.Popen([WEIR, *map(str, arguments)], env=environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = ""
        if after is None:
            while not re.match(r" *\d", first):  # a line about a time, not a heading
                first = process.stdout.readline()
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=after)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess([], process.returncode, first + output, errors)

    def test_a_measurement_that_was_interrupted_says_so(self):
        with server() as peer:
            client = ["perf", "client", "--peer", peer.address, "--interval", 0.1]
            self.expect_sentence(self.interrupted(*client, "--count", 1 << 50), " of 1,125,899,906,842,624 calls",
                                 "interrupted: ", code=130)
            result = self.interrupted(*client, "--seconds", 1000)
            self.expect_sentence(result, " of 1000 s", "interrupted: ", code=130)
            self.assertIn("goodput", result.stdout)
            for after in (1, 4, 15, 60):  # it prints nothing by which one could tell that it has begun
                result = self.interrupted(*client, "--seconds", 1000, "--json", after=after)
                if result.returncode == 130 and "calls" in result.stdout:
                    break
            self.expect_sentence(result, "interrupted", code=130)
            self.assertIs(json.loads(result.stdout)["interrupted"], True)

    def test_an_interval_without_calls_has_no_latency(self):
        with server() as peer:
            client = subprocess.Popen([WEIR, "perf", "client", "--peer", peer.address, "--seconds", "30", "--interval",
                                       "0.2"], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            for _ in range(4):
                client.stdout.readline()
            peer.kill()
            output, _ = client.communicate(timeout=PATIENCE_S)
            self.assertRegex(output, r"(?m)^ *\d+\.\d\d-\d+\.\d\d +0 +0\.0 MB/s +- +- ")
            self.assertNotIn(" 0.0 us", output)

    def test_a_server_that_goes_away_fails_the_calls(self):
        with server() as peer:
            client = subprocess.Popen([WEIR, "perf", "client", "--peer", peer.address, "--window", "8", "--seconds", "30",
                                       "--interval", "0.1"], env=environment(), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(4):  # until it is well under way
                client.stdout.readline()
            peer.kill()
            _, errors = client.communicate(timeout=PATIENCE_S)
            self.assertEqual(client.returncode, 1)
            self.assertRegex(errors, r"8 calls failed, the first with: \w+")


class Demo(Case):
    def expect_rounds(self, text, peers, at_once):
        made = re.search(rf"made ([\d,]+) calls? to {peers:,} servers?, {at_once:,} at once in (one round|each of ([\d,]+) "
                         r"rounds): [\d.,]+ ?[kM]? calls/s", text)
        self.assertTrue(made, text)
        calls, rounds = (int(number.replace(",", "")) for number in (made[1], made[3] or "1"))
        self.assertNotIn(" 1 rounds", text)
        self.assertGreater(rounds, 0)
        self.assertEqual(calls, at_once * rounds)
        self.assertIn("Every call was answered once", text)
        time = r"[\d.,]+ (ns|us|µs|ms|s)"
        self.assertRegex(text, rf"Half of the calls took at most {time}, 99 % at most {time}, the slowest {time}")
        self.assertRegex(text, r"packets of encrypted UDP: \d+\.\d % of it was payload")
        self.assertRegex(text, r"Nothing had to be sent again|(\b1 frame|[\d,]+ frames) \(.* %.*\) (was|were) sent again")

    def test_all_calls_of_a_short_demo_succeed(self):
        result = weir("demo", "--seconds", 1, "--peers", 10, "--calls", 500, secret=None)
        self.expect_success(result)
        self.expect_rounds(result.stdout, 10, 500)
        self.assertNotIn("\x1b", result.stdout)
        self.assertEqual(result.stderr.count("this pool has a development identity"), 1, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^ *\d\.\d s .* calls/s  p50 .*  p99 .*  goodput 0\.\d+  sent again [\d,]+  "
                                        r"failed 0$")

    def test_as_it_is_run_for_the_first_time(self):
        result = weir("demo", "--seconds", 2, secret=None)
        self.expect_success(result)
        self.expect_rounds(result.stdout, 100, 10_000)

    def test_requests_of_any_size(self):
        for size in 8, 9, 16 * 1024:
            result = weir("demo", "--seconds", 0.1, "--peers", 3, "--calls", 300, "--size", size, secret=None)
            self.expect_success(result)
            self.expect_rounds(result.stdout, 3, 300)

    def test_many_calls_to_many_servers_take_long_and_do_not_fail(self):
        result = weir("demo", "--seconds", 0.1, "--peers", 1000, "--calls", 100_000, "--size", 8, secret=None)
        self.expect_success(result)
        self.expect_rounds(result.stdout, 1000, 100_000)

    def test_one_call_is_one_call(self):
        result = weir("demo", "--seconds", 0.1, "--peers", 1, "--calls", 1, secret=None)
        self.expect_success(result)
        self.assertIn("1 client, 1 server, 1 call outstanding", result.stdout)
        self.assertNotIn("others of its round", result.stdout)

    def test_more_memory_than_sensible_is_refused(self):
        result = weir("demo", "--calls", 1_000_000, "--size", 16384, secret=None)
        self.expect_sentence(result, "lower --calls or --size", code=2)

    def test_ctrl_c_ends_a_large_round(self):
        with subprocess.Popen([WEIR, "demo", "--seconds", "3600", "--calls", "1000000", "--size", "64"],
                              env=environment(None), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if " calls/s " in line:  # in the middle of a round
                    break
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 130, output + errors)
        self.assertIn("weir: interrupted", errors)
        self.assertNotIn("FAILED", output)

    def on_terminal(self, kind="xterm", columns=0):
        """What a short demo writes to a terminal."""
        ours, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, columns))
        with os.fdopen(ours, "rb", buffering=0) as screen:
            process = subprocess.Popen([WEIR, "demo", "--seconds", "1", "--peers", "10", "--calls", "500"],
                                       env=environment(None) | {"TERM": kind}, stdin=subprocess.DEVNULL,
                                       stdout=terminal, stderr=subprocess.PIPE)
            os.close(terminal)
            written = bytearray()
            with contextlib.suppress(OSError):  # how the end of the other side is told
                while more := screen.read(65536):
                    written += more
            self.assertEqual(process.wait(timeout=PATIENCE_S), 0, process.stderr.read())
            process.stderr.close()
        return written.decode()

    def test_draws_nothing_where_it_could_not_draw_again(self):
        for options in {"kind": "dumb"}, {"columns": 79}:
            with self.subTest(**options):
                text = self.on_terminal(**options)
                self.assertNotIn("\x1b", text)
                self.expect_rounds(text, 10, 500)

    def test_draws_on_a_terminal(self):
        text = self.on_terminal(columns=80)
        before, drawn, after = re.split(r"\x1b\[\?25[lh]", text)  # the cursor is hidden while it draws
        self.assertNotIn("\x1b", before + after)
        self.expect_rounds(after, 10, 500)
        pictures = drawn.split("\x1b[6A")  # each goes up to where the last one began
        self.assertGreaterEqual(len(pictures), 3)
        for picture in pictures:
            lines = re.sub(r"\x1b\[[\d;]*[A-Za-z]|\r", "", picture).strip("\n").split("\n")
            self.assertEqual([line[:12].strip() for line in lines],
                             ["rate", "latency", "goodput", "sent again", "calls", "time"], picture)
            for line in lines:
                self.assertLessEqual(len(line), 80, line)
            self.assertIn("p99.9 ", lines[1])
            self.assertIn(" 0 failed", lines[4])


class Sim(Case):
    NAMED = {"calm", "lossy", "reorder", "corrupt", "partition", "restart", "stall", "mixed"}  # there are these at least

    def scenarios(self):
        """Those that run if none is named."""
        listed = weir("sim", "--help").stdout.partition("Scenarios:\n")[2].partition("Only if they are named")[0]
        return set(re.findall(r"^  (\w+) ", listed, re.MULTILINE))

    def test_a_second_process_gives_the_same_hash(self):
        """Of one process, a test cannot see what depends on where its memory lies."""
        scenarios = self.scenarios()
        self.assertLessEqual(self.NAMED, scenarios)
        hashes = set()
        for scenario in scenarios:
            with self.subTest(scenario=scenario):
                run = "sim", "--seed", 7, "--scenario", scenario
                once, again = weir(*run), weir(*run)
                self.expect_success(once)
                self.assertEqual(once.stdout, again.stdout)
                self.assertRegex(once.stdout, rf"^seed 7 {scenario}: \d+ calls.* 0 violations, hash [0-9a-f]{{16}}\n$")
                hashes.add(once.stdout[-17:])
        self.assertEqual(len(hashes), len(scenarios))

    def test_the_seed_decides(self):
        once, other = weir("sim", "--scenario", "lossy", "--seed", 7), weir("sim", "--scenario", "lossy", "--seed", 8)
        self.assertNotEqual(once.stdout[-17:], other.stdout[-17:])

    def test_many_seeds_end_with_one_hash(self):
        run = "sim", "--scenario", "calm", "--seed", 3, "--seeds", 4, "--each"
        once, again = weir(*run), weir(*run)
        self.expect_success(once)
        self.assertEqual(once.stdout, again.stdout)
        self.assertEqual(re.findall(r"(?m)^seed (\d+) calm: ", once.stdout), ["3", "4", "5", "6"])
        self.assertRegex(once.stdout, r"\n4 runs of seeds 3 to 6, \d+ calls, 0 violations, hash [0-9a-f]{16}\n$")

    def test_a_trace_tells_every_event(self):
        result = weir("sim", "--scenario", "calm", "--trace")
        self.expect_success(result)
        events = int(re.search(r"(\d+) events, 0 violations, hash [0-9a-f]{16}\n$", result.stdout).group(1))
        self.assertGreater(events, 0)
        self.assertGreater(result.stdout.count("\n"), events / 10)

    def test_a_trace_of_many_seeds_is_refused(self):
        result = weir("sim", "--seeds", 2, "--trace")
        self.expect_sentence(result, "--trace", "--seeds", code=2)
        self.assertEqual(result.stdout, "")

    def test_all_scenarios_run_if_none_is_named(self):
        result = weir("sim", "--seed", 5)
        self.expect_success(result)
        self.assertEqual(set(re.findall(r"(?m)^seed 5 (\w+): ", result.stdout)), self.scenarios())

    def test_loads_in_a_fabric_repeat_in_a_second_process(self):
        listed = weir("sim", "--help").stdout.partition("Loads in a fabric of")[2]
        loads = re.findall(r"^  (fabric-\w+) ", listed, re.MULTILINE)
        self.assertGreaterEqual(len(loads), 4)
        for load in loads:
            with self.subTest(load=load):
                run = "sim", "--seed", 7, "--scenario", load, "--small"
                once, again = weir(*run), weir(*run)
                self.assertEqual(once.returncode, 0)
                self.assertEqual(once.stdout, again.stdout)
                self.assertRegex(once.stdout, r"(?m)^  met     every call is answered")
                self.assertRegex(once.stdout, r"\n\d+ events, hash [0-9a-f]{16}\n$")

    def test_a_report_of_loads_is_one_page(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as folder:
            page = pathlib.Path(folder) / "fabric.html"
            result = weir("sim", "--seed", 9, "--scenario", "fabric-incast", "--small", "--report", page)
            self.assertEqual(result.returncode, 0)
            text = page.read_text(encoding="utf-8")
            self.assertTrue(text.startswith("<!doctype html>") and text.endswith("</html>\n"))
            self.assertIn("fabric-incast, seed 9", text)
            missing = weir("sim", "--small", "--report", pathlib.Path(folder) / "no" / "fabric.html")
            self.expect_sentence(missing, "cannot write", "fabric.html", code=1)

    def test_options_of_loads_are_refused_elsewhere(self):
        self.expect_sentence(weir("sim", "--scenario", "calm", "--small"), "--scenario", code=2)
        self.expect_sentence(weir("sim", "--scenario", "fabric-burst", "--trace"), "--trace", code=2)
        self.expect_sentence(weir("sim", "--sweep", "--scenario", "calm"), "--sweep", code=2)
        limited = "sim", "--nic-bandwidth", "1gbit"
        self.expect_sentence(weir(*limited, "--scenario", "fabric-burst"), "--nic-bandwidth", code=2)
        self.expect_sentence(weir(*limited, "--sweep"), "--nic-bandwidth", code=2)

    def test_an_unknown_scenario_is_told_what_there_is(self):
        self.expect_sentence(weir("sim", "--scenario", "sunny"), "sunny", "calm", code=2)


class Identity(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ca = self.folder / "ca"
        self.node = self.folder / "node"

    def new_ca(self, *arguments):
        result = weir("identity", "new-ca", self.ca, *arguments)
        self.expect_success(result)
        return result

    def issue(self, *arguments):
        return weir("identity", "issue", self.ca, "--out", self.node, *arguments)

    def show(self, file):
        result = weir("identity", "show", file, "--json")
        self.expect_success(result)
        return json.loads(result.stdout)["certificates"]

    def mode(self, file):
        return stat.S_IMODE(file.stat().st_mode)

    def test_an_authority_and_a_node_in_two_commands(self):
        for key, kind in ("ed25519", "Ed25519"), ("p256", "ECDSA P-256"):
            with self.subTest(key=key):
                self.ca, self.node = self.folder / f"ca-{key}", self.folder / f"node-{key}"
                made = self.new_ca("--name", "Rack 1", "--days", 100, "--key", key)
                self.assertIn(f"weir identity issue {self.ca}", made.stdout)
                result = self.issue("--name", "DB7.example", "--name", "*.db.example", "--address", "10.0.0.7", "--address",
                                    "::1", "--days", 30, "--key", key)
                self.expect_success(result)
                self.assertEqual(self.mode(self.ca), 0o700)
                for secret in self.ca / "ca.key", self.node / "node.key":
                    self.assertEqual(self.mode(secret), 0o600)
                    self.assertIn("BEGIN PRIVATE KEY", secret.read_text())
                self.assertEqual((self.ca / "ca.crt").read_text(), (self.node / "ca.crt").read_text())
                [authority] = self.show(self.ca / "ca.crt")
                self.assertEqual(authority["subject"], "CN=Rack 1")
                self.assertTrue(authority["authority"])
                self.assertIn(authority["days_left"], (99, 100))  # the clock goes on
                self.assertEqual(authority["key"], kind)
                [node] = self.show(self.node / "node.crt")
                self.assertEqual(node["names"], ["db7.example", "*.db.example", "10.0.0.7", "::1"])
                self.assertEqual(node["issuer"], "CN=Rack 1")
                self.assertEqual(node["purposes"], ["server", "client"])
                self.assertEqual((node["authority"], node["valid"], node["trouble"]), (False, True, ""))
                self.assertIn(node["days_left"], (29, 30))
                self.assertEqual((len(node["serial"]), len(node["fingerprint_sha256"])), (32, 64))

    def test_show_is_for_people_too(self):
        self.new_ca()
        self.expect_success(self.issue("--name", "db7.example"))
        result = weir("identity", "show", self.node / "node.crt")
        self.expect_success(result)
        self.assertRegex(result.stdout, r"Subject +CN=db7.example\nNames +db7.example\n"
                                        r"Valid +\d{4}-\d\d-\d\d .* \(36[45] days left\)\nFor +server, client\n"
                                        r"Key +Ed25519\nIssuer +CN=Weir authority\nSerial .*\nFingerprint +SHA-256 [0-9a-f]{64}\n")
        both = self.folder / "both.crt"
        both.write_text((self.node / "node.crt").read_text() + (self.ca / "ca.crt").read_text())
        self.assertEqual([one["authority"] for one in self.show(both)], [False, True])

    def test_nothing_is_overwritten(self):
        self.new_ca()
        before = {file.name: file.read_bytes() for file in self.ca.iterdir()}
        self.expect_sentence(weir("identity", "new-ca", self.ca), "exists already")
        (self.ca / "ca.key").unlink()
        self.expect_sentence(weir("identity", "new-ca", self.ca), "ca.crt exists already")
        self.assertEqual([file.name for file in self.ca.iterdir()], ["ca.crt"])
        self.assertEqual((self.ca / "ca.crt").read_bytes(), before["ca.crt"])
        (self.ca / "ca.key").write_bytes(before["ca.key"])
        (self.ca / "ca.key").chmod(0o600)
        self.expect_success(self.issue("--name", "db7.example"))
        self.expect_sentence(self.issue("--name", "db7.example"), "node.key exists already")

    def test_what_makes_no_sense_is_told(self):
        self.new_ca()
        self.expect_sentence(self.issue(), "--name", code=2)
        self.expect_sentence(self.issue("--name", "not a host"), "not a host", code=2)
        self.expect_sentence(self.issue("--address", "db7.example"), "not an IP address", code=2)
        self.expect_sentence(self.issue("--name", "a.example", "--days", "0"), "days", code=2)
        self.expect_sentence(self.issue("--name", "a.example", "--key", "dsa"), "key", code=2)
        self.assertFalse(self.node.exists())
        self.expect_sentence(weir("identity", "issue", self.folder / "nowhere", "--name", "a.example"), "ca.key",
                             "no such file")
        self.expect_sentence(weir("identity", "show", self.folder / "nowhere"), "no such file")
        self.expect_sentence(weir("identity", "show", self.ca / "ca.key"), "certificate", code=2)
        self.expect_sentence(weir("identity"), "Try", code=2)
        (self.ca / "ca.key").chmod(0o644)
        self.expect_sentence(self.issue("--name", "a.example"), "chmod 600", code=2)

    def test_a_node_ends_with_its_authority(self):
        self.new_ca("--days", 10)
        result = self.issue("--name", "db7.example", "--days", 100)
        self.expect_success(result)
        self.assertIn("ends sooner", result.stderr)
        self.assertEqual(self.show(self.node / "node.crt")[0]["not_after"], self.show(self.ca / "ca.crt")[0]["not_after"])


def main():
    global WEIR
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    WEIR = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)


if __name__ == "__main__":
    main()
