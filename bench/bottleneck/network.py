"""Client, router and server in three network namespaces; the router's way to one of them is the bottleneck.

    client 10.91.1.2 ---- 10.91.1.1 router 10.91.2.1 ---- 10.91.2.2 server

A namespace has no name: a process holds it, which ends when its standard input does. So nothing is left behind however
the benchmark ends, and several of them can run at once.
"""

import json
import os
import pathlib
import subprocess
import sys

from processes import Failure, last_words, stop

MTU = 1500
ETHERNET_HEADER = 14  # the kernel counts it with the bytes of queues and devices
CLIENT, SERVER = "10.91.1.2", "10.91.2.2"
LONG_QUEUE = 10_000  # packets; where nothing is to be dropped
START_S = 10


class NotPossible(Exception):
    """There are no namespaces to be had here; the text says why."""


class Namespace:
    def __init__(self):
        command = ["unshare", "--net", "sh", "-c", "echo && exec cat"]
        try:
            self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True, start_new_session=True)
        except OSError as error:
            raise NotPossible(f"unshare: {error.strerror}")
        if not self.holder.stdout.readline():
            why = last_words(self.holder.stderr.read())
            self.close()
            raise NotPossible(why)

    def inside(self, command):
        """The same command, in here."""
        return ["nsenter", "--target", str(self.holder.pid), "--net", "--", *(str(word) for word in command)]

    def run(self, *command):
        result = subprocess.run(self.inside(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=START_S)
        if result.returncode != 0:
            raise Failure(f"{' '.join(str(word) for word in command)}: {last_words(result.stderr)}")
        return result.stdout

    def write_setting(self, name, value):
        self.run("sh", "-c", f"echo {value} > /proc/sys/net/{name}")

    def protocol_counters(self):
        """What /proc/net/snmp counts: {"Tcp": {"RetransSegs": ...}, "Udp": ...}."""
        lines = pathlib.Path(f"/proc/{self.holder.pid}/net/snmp").read_text().splitlines()
        counters = {}
        for names, values in zip(lines[::2], lines[1::2]):
            protocol, names = names.split(": ")
            counters[protocol] = dict(zip(names.split(), map(int, values.split(": ")[1].split())))
        return counters

    def close(self):
        self.holder.stdin.close()
        stop(self.holder)
        self.holder.stdout.close()
        self.holder.stderr.close()


def require_namespaces():
    if os.geteuid() != 0:
        raise NotPossible("network namespaces need root")
    Namespace().close()


class Network:
    """The three of them, from start to end of a `with` block."""

    def __init__(self, direction, rate_bits, burst_bytes, queue_bytes):
        self.limited = {"request": "server", "reply": "client"}[direction]
        self.shape = ["tbf", "rate", f"{rate_bits:.0f}bit", "burst", burst_bytes, "limit", queue_bytes]
        self.spaces = []

    def __enter__(self):
        try:
            for _ in range(3):
                self.spaces.append(Namespace())
            self.client, self.router, self.server = self.spaces
            self.connect(self.client, "client", CLIENT)
            self.connect(self.server, "server", SERVER)
            self.router.write_setting("ipv4/ip_forward", 1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in self.spaces:
            space.close()
        self.spaces = []

    def connect(self, host, name, address):
        """A link between a host and the router, whose device has the host's name."""
        gateway = address.rsplit(".", 1)[0] + ".1"
        host.run("ip", "link", "add", "uplink", "mtu", MTU, "type", "veth", "peer", "name", name, "mtu", MTU, "netns",
                 self.router.holder.pid)
        for space, device, own in ((host, "uplink", address), (self.router, name, gateway)):
            # Counters see the programs' packets and no others.
            space.write_setting("ipv6/conf/all/disable_ipv6", 1)
            space.run("ip", "address", "add", f"{own}/24", "dev", device)
            space.run(sys.executable, pathlib.Path(__file__).with_name("offloads.py"), device)
            space.run("ip", "link", "set", device, "up")
        self.never_ask_for_addresses(host, "uplink", self.router, name, gateway)
        self.never_ask_for_addresses(self.router, name, host, "uplink", address)
        host.run("ip", "route", "add", "default", "via", gateway)
        shape = self.shape if name == self.limited else ["pfifo", "limit", LONG_QUEUE]
        self.router.run("tc", "qdisc", "add", "dev", name, "root", *shape)

    @staticmethod
    def never_ask_for_addresses(space, device, other, other_device, other_address):
        hardware = json.loads(other.run("ip", "-j", "link", "show", "dev", other_device))[0]["address"]
        space.run("ip", "neighbour", "replace", other_address, "lladdr", hardware, "dev", device, "nud", "permanent")

    def counters(self):
        """Totals since the start: what the hosts sent, and what became of it at the router."""
        totals = {"sent_packets": 0, "sent_bytes": 0, "dropped_elsewhere": 0}
        for link in json.loads(self.router.run("ip", "-j", "-s", "link")):
            if link["ifname"] not in ("client", "server"):
                continue
            received = link["stats64"]["rx"]
            totals["sent_packets"] += received["packets"]
            totals["sent_bytes"] += received["bytes"] - ETHERNET_HEADER * received["packets"]
            totals["dropped_elsewhere"] += received["dropped"]
        for queue in json.loads(self.router.run("tc", "-j", "-s", "qdisc")):
            side = {"server": "request", "client": "reply"}.get(queue["dev"])
            if side:
                totals[f"{side}_forwarded"] = queue["packets"]
                totals[f"{side}_dropped"] = queue["drops"]
        for space in (self.client, self.server):
            protocols = space.protocol_counters()
            for name, protocol, counter in (("tcp_segments", "Tcp", "OutSegs"),
                                            ("tcp_retransmitted", "Tcp", "RetransSegs"),
                                            ("udp_full_sockets", "Udp", "RcvbufErrors")):
                totals[name] = totals.get(name, 0) + protocols[protocol][counter]
        return totals
