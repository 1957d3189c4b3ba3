"""The programs that are compared, and the conversation with them (burst.h)."""

import json
import os
import select
import subprocess
import tempfile
import time

from processes import Failure, last_words, stop

START_S = 30  # until a program can be used
COUNTERS_S = 10
END_S = 3


class Contestant:
    def __init__(self, label, program, package=None, options=lambda row, directory: [], per_peer=True):
        self.label = label
        self.program = program  # below bench/ in the build folder
        self.package = package  # what to install if it was not built; None if it needs nothing
        self.options = options  # of both roles, on top of what all programs understand
        self.per_peer = per_peer  # whether the number of peers makes a difference


def udp_options(row, _):
    """As much as the queue takes, so that it neither runs dry nor drops anything."""
    return ["--in-flight", max(1, row.queue_bytes * 15 // 16 // row.clients)]


CONTESTANTS = {
    "raw-udp": Contestant("raw UDP", "peers/burst_udp", options=udp_options, per_peer=False),
    "weir": Contestant("Weir", "bottleneck/weir",
                       options=lambda row, directory: ["--identity", directory] if row.identity else []),
    "grpc-tls": Contestant("gRPC TLS", "peers/burst_grpc_tls", "libgrpc++-dev",
                           options=lambda row, directory: ["--certificate", directory]),
    "zeromq": Contestant("ZeroMQ", "peers/burst_zeromq", "libzmq3-dev"),
}


class Program:
    """One process inside a namespace, from start to end of a `with` block."""

    def __init__(self, space, command):
        self.command = space.inside(command)

    def __enter__(self):
        self.errors = tempfile.TemporaryFile(mode="w+")
        # Its own session: a Ctrl-C is for the benchmark, which then ends its programs in order.
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, start_new_session=True)
        self.pending = b""
        try:
            self.answer(START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def ask(self, what):
        try:
            self.process.stdin.write(what.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(f"a program ended: {self.said()}")

    def answer(self, patience_s):
        end = time.monotonic() + patience_s
        while b"\n" not in self.pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failure(f"no answer within {patience_s} s")
            received = os.read(self.process.stdout.fileno(), 65_536)
            if not received:
                raise Failure(f"a program ended: {self.said()}")
            self.pending += received
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def counters(self):
        self.ask("counters")
        return self.answer(COUNTERS_S)

    def said(self):
        self.errors.seek(0)
        return last_words(self.errors.read())

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=END_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            pass
        finally:
            stop(self.process)
            self.process.stdout.close()
            self.errors.close()
