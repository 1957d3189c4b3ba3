"""Senders, receivers and one thin cable between them, in namespaces; what each flow delivers is counted by its device.

    client 10.91.1.2 ---- router ==== far ---- 10.92.0.2, 10.92.1.2, ... server

`====` is the bottleneck: the router's queue towards `far`, and, if there is a delay, a cable that a program makes of two
TUN devices (the kernels that this is for have no netem). Each place of the server is a /24 network with a cable of its
own, so that the counters of these cables tell the flows apart.
"""

import json
import os
import pathlib
import subprocess
import sys

from bottleneck.contestants import Program
from bottleneck.network import ETHERNET_HEADER, LONG_QUEUE, MTU, START_S, Namespace
from processes import Failure, last_words

OFFLOADS = pathlib.Path(__file__).resolve().parent.parent / "bottleneck" / "offloads.py"
CLIENT_GATEWAY, CLIENT = "10.91.1.1", "10.91.1.2"
NEAR, FAR = "10.91.9.1", "10.91.9.2"
THIN = "thin"
TUN_QUEUE = 5_000  # packets that wait for the program which makes the delay
RATE_BITS, BURST_BYTES = 250e6, 8 << 10


def address_of(place):
    return f"10.92.{place}.2"


class Network:
    """All of it, from start to end of a `with` block. `delay_program` makes half of `round_trip_ms` in each direction."""

    def __init__(self, places, queue_bytes, round_trip_ms=0, delay_program=None):
        self.places = places
        self.queue_bytes = queue_bytes
        self.round_trip_ms = round_trip_ms
        self.delay_program = delay_program
        self.spaces = []
        self.delay = None

    def __enter__(self):
        try:
            self.spaces = [Namespace() for _ in range(4)]
            self.client, self.router, self.far, self.server = self.spaces
            self.make_cables()
            self.make_routes()
            for space, device in ((self.router, THIN), (self.far, THIN)):
                limited = space is self.router
                shape = (f"tbf rate {RATE_BITS:.0f}bit burst {BURST_BYTES} limit {self.queue_bytes}" if limited else
                         f"pfifo limit {LONG_QUEUE}")
                space.run("tc", "qdisc", "add", "dev", device, "root", *shape.split())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.delay:
            self.delay.__exit__()
        for space in self.spaces:
            space.close()
        self.spaces, self.delay = [], None

    @staticmethod
    def batch(space, lines):
        """Many `ip` commands at once; to start the program for each takes longer than what it does."""
        result = subprocess.run(space.inside(["ip", "-batch", "-"]), input="\n".join(lines) + "\n", capture_output=True,
                                text=True, timeout=START_S)
        if result.returncode != 0:
            raise Failure(f"ip: {last_words(result.stderr)}")

    def make_cables(self):
        for space in self.spaces:  # counters see the programs' packets and no others
            space.write_setting("ipv6/conf/all/disable_ipv6", 1)
            space.write_setting("ipv4/conf/all/rp_filter", 0)
            space.write_setting("ipv4/conf/default/rp_filter", 0)
        veth = f"mtu {MTU} type veth peer name {{}} mtu {MTU} netns {{}}"
        self.batch(self.client, ["link add uplink " + veth.format("client", self.router.holder.pid)])
        self.batch(self.far, [f"link add flow{k} " + veth.format(f"flow{k}", self.server.holder.pid)
                              for k in range(self.places)])
        if self.round_trip_ms:
            self.delay = Program(self.router, [])
            self.delay.command = [str(self.delay_program), str(self.router.holder.pid), THIN,
                                  str(self.far.holder.pid), THIN, str(round(500 * self.round_trip_ms))]
            self.delay.__enter__()
            for space in (self.router, self.far):
                self.batch(space, [f"link set {THIN} mtu {MTU} txqueuelen {TUN_QUEUE}"])
        else:
            self.batch(self.router, [f"link add {THIN} " + veth.format(THIN, self.far.holder.pid)])

    def make_routes(self):
        flows = [f"flow{k}" for k in range(self.places)]
        devices = {self.client: ["uplink"], self.router: ["client", THIN], self.far: [THIN, *flows],
                   self.server: flows}
        addresses = {self.client: {"uplink": CLIENT}, self.router: {"client": CLIENT_GATEWAY, THIN: NEAR},
                     self.far: {THIN: FAR, **{f"flow{k}": f"10.92.{k}.1" for k in range(self.places)}},
                     self.server: {f"flow{k}": address_of(k) for k in range(self.places)}}
        for space in self.spaces:
            space.run(sys.executable, OFFLOADS, *devices[space])
            self.batch(space, [f"address add {address}/24 dev {device}" for device, address in addresses[space].items()]
                       + [f"link set {device} up" for device in devices[space]])
        self.never_ask_for_addresses(devices, addresses)
        self.batch(self.client, [f"route add default via {CLIENT_GATEWAY}"])
        self.batch(self.router, [f"route add 10.92.0.0/16 via {FAR}"])
        self.batch(self.far, [f"route add 10.91.1.0/24 via {NEAR}"])
        self.batch(self.server, ["route add default via 10.92.0.1"])
        self.router.write_setting("ipv4/ip_forward", 1)
        self.far.write_setting("ipv4/ip_forward", 1)
        self.client.write_setting("ipv4/tcp_no_metrics_save", 1)

    def never_ask_for_addresses(self, devices, addresses):
        """The first packets would wait for that; both ends of a cable are told who is at the other."""
        hardware = {space: {link["ifname"]: link.get("address") for link in json.loads(space.run("ip", "-j", "link"))}
                    for space in self.spaces}
        ends = [(self.client, "uplink", self.router, "client")]
        ends += [(self.far, f"flow{k}", self.server, f"flow{k}") for k in range(self.places)]
        if not self.delay:
            ends.append((self.router, THIN, self.far, THIN))
        lines = {space: [] for space in self.spaces}
        for end in ends:
            for space, device, other, other_device in (end, (*end[2:], *end[:2])):
                lines[space].append(f"neighbour replace {addresses[other][other_device]} lladdr "
                                    f"{hardware[other][other_device]} dev {device} nud permanent")
        for space in self.spaces:
            self.batch(space, lines[space])

    def delivered(self):
        """Bytes of IP packets that each place was sent so far. Starts no process: this is asked ten times a second."""
        counts = [0] * self.places
        for line in pathlib.Path(f"/proc/{self.far.holder.pid}/net/dev").read_text().splitlines():
            name, _, values = line.partition(":")
            if name.strip().startswith("flow"):
                fields = values.split()
                bytes_sent, packets_sent = int(fields[8]), int(fields[9])
                counts[int(name.strip()[4:])] = bytes_sent - ETHERNET_HEADER * packets_sent
        return counts

    def queue(self):
        """What went through the bottleneck's queue, and what it dropped; in packets."""
        for queue in json.loads(self.router.run("tc", "-j", "-s", "qdisc", "show", "dev", THIN)):
            if queue["kind"] == "tbf":
                return {"forwarded": queue["packets"], "dropped": queue["drops"]}
        raise Failure("the bottleneck has no queue")

    def lost_elsewhere(self):
        """Packets that devices dropped, of which there should be none."""
        lost = 0
        for space in self.spaces:
            for line in pathlib.Path(f"/proc/{space.holder.pid}/net/dev").read_text().splitlines()[2:]:
                fields = line.partition(":")[2].split()
                lost += int(fields[3]) + int(fields[11])
        return lost


def can_delay():
    return os.access("/dev/net/tun", os.R_OK | os.W_OK)
