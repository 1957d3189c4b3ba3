"""Starting, watching and ending the processes that a benchmark needs, and nothing but those."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time

LOOPBACK = "127.0.0.1"


class Failure(Exception):
    """A run that gave no usable figures; the text says why."""


def free_ports(transport, count):
    """The first of `count` consecutive ports that nobody has."""
    kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
    for _ in range(100):
        with contextlib.ExitStack() as probes:
            first = None
            try:
                for index in range(count):
                    probe = probes.enter_context(socket.socket(socket.AF_INET, kind))
                    probe.bind((LOOPBACK, first + index if first else 0))
                    first = first or probe.getsockname()[1]
                return first
            except (OSError, OverflowError):
                continue
    raise Failure(f"there are no {count} consecutive ports free")


def is_bound(transport, port):
    """Whether somebody on this machine has the port, without sending anything to it."""
    for table in (transport, transport + "6"):
        try:
            lines = pathlib.Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            listening = transport == "udp" or fields[3] == "0A"
            if listening and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def take_priority():
    """Real-time priority, which programs that are started later inherit: beside other work their turn comes at once, and
    those that yield give way to each other, which ordinary programs do not. Without the right to it, says so."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        print(f"warning: no real-time priority for the programs: {error.strerror}")


def last_words(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


class Server:
    """One server process, from start to end of a `with` block."""

    def __init__(self, command, transport, port, environment):
        self.command = command
        self.transport = transport
        self.port = port
        self.environment = environment

    def __enter__(self):
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.errors)
        try:
            deadline = time.monotonic() + 10
            while not is_bound(self.transport, self.port):
                if self.process.poll() is not None:
                    raise Failure(f"the server ended at once ({self.process.returncode}): {self.said()}")
                if time.monotonic() > deadline:
                    raise Failure("the server did not listen within 10 s")
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        return self

    def said(self):
        self.errors.seek(0)
        return last_words(self.errors.read())

    def __exit__(self, *_):
        stop(self.process)
        self.errors.close()


def stop(process):
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_client(command, seconds, environment):
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=seconds + 20)
    except subprocess.TimeoutExpired:
        raise Failure(f"the client did not end within {seconds + 20:.0f} s")
    finally:
        stop(process)
    if process.returncode != 0:
        raise Failure(f"the client ended with {process.returncode}: {last_words(errors)}")
    try:
        report = json.loads(output[output.index("{"):])
        report["calls_per_s"], report["latency_us"]["p50"], report["errors"]
    except (ValueError, KeyError, TypeError):
        raise Failure("the client printed no report with calls_per_s, latency_us.p50 and errors")
    if report["errors"]:
        raise Failure(f"{report['errors']} calls failed")
    if not report["calls_per_s"] > 0:
        raise Failure("no call completed")
    return report


def process_cpu_seconds(process_id):
    # The second field is the command's name, in parentheses, and may itself contain any character.
    fields = pathlib.Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
