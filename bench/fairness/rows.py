"""What is measured: flows that come and go at one bottleneck."""

from fairness.network import RATE_BITS

ROUND_TRIP_MS = 10
SHORT_QUEUE = 64 << 10
DELAY_PRODUCT = round(RATE_BITS / 8 * ROUND_TRIP_MS / 1000)  # what is under way in a round trip
CUTS = {"without delay": (0, SHORT_QUEUE), "10 ms": (ROUND_TRIP_MS, DELAY_PRODUCT)}
TCP_NAMES = {"cubic": "TCP cubic", "bbr": "TCP BBR"}


class Flow:
    """One sender: a process that sends to some places, from `start` to `end` in seconds of the row."""

    def __init__(self, name, kind, places, start, end, paths=1, window=4):
        self.name = name
        self.kind = kind  # "weir", or a congestion control of TCP
        self.places = places
        self.start = start
        self.end = end
        self.paths = paths  # to each place, at one port each
        self.window = window  # messages of Weir under way on each path


class Row:
    def __init__(self, name, title, cut, flows, judged):
        self.name = name
        self.title = title
        self.cut = cut
        self.round_trip_ms, self.queue_bytes = CUTS[cut]
        self.flows = flows
        self.judged = judged  # the flows are compared with each other from here to there
        self.seconds = max(flow.end for flow in flows)

    @property
    def places(self):
        return sum(len(flow.places) for flow in self.flows)

    def joined(self):
        """When the last flow came."""
        return max(flow.start for flow in self.flows)

    def left(self):
        """When the first flow goes; None: all stay to the end."""
        first = min(flow.end for flow in self.flows)
        return first if first < self.seconds else None

    def all_there(self):
        """Until when all flows are there."""
        return min(flow.end for flow in self.flows)


def two(cut):
    flows = [Flow("first", "weir", [0], 0, 10), Flow("second", "weir", [1], 3, 13)]
    return Row("two", "Two Weir flows; the second comes after 3 s, the first leaves after 10 s", cut, flows, (6, 10))


def two_shared(cut):
    """The paths of each process share a window."""
    flows = [Flow("first, 4 paths", "weir", [0], 0, 10, paths=4, window=2),
             Flow("second, 4 paths", "weir", [1], 2, 10, paths=4, window=2)]
    return Row("two4", "Two Weir processes with four paths each; the second comes after 2 s", cut, flows, (5, 10))


def fifty(cut):
    """Each process has ten paths, to networks of their own: paths to one network share a window."""
    flows = [Flow(f"process {k + 1}", "weir", list(range(10 * k, 10 * k + 10)), 0, 10, window=2) for k in range(5)]
    return Row("fifty", "Fifty Weir flows (five processes with ten each), all at once", cut, flows, (5, 10))


def beside(kind, other, cut, paths=1):
    names = {1: "Weir", 4: "Weir, 4 paths"}
    mine = (Flow(names[paths], "weir", [0], 0, 10, paths=paths, window=2 if paths > 1 else 4) if kind == "weir" else
            Flow(TCP_NAMES[kind], kind, [0], 0, 10))
    name = {"weir": "weir" if paths == 1 else f"weir{paths}"}.get(kind, kind)
    return Row(f"{name}-{other}", f"{mine.name} beside one {TCP_NAMES[other]}, which comes after 2 s", cut,
               [mine, Flow(TCP_NAMES[other], other, [1], 2, 10)], (5, 10))


def all_rows():
    rows = []
    for cut in CUTS:
        rows += [two(cut), two_shared(cut), fifty(cut)]
        rows += [beside("weir", other, cut, paths) for paths in (1, 4) for other in ("cubic", "bbr")]
        rows += [beside("cubic", "bbr", cut)]
    return rows
