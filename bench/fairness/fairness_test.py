"""The parts of `./dev bench --case fairness`: that it counts, compares and draws what it says. Nothing is timed.

fairness_test.py FOLDER, where the programs of this folder were built. Exits with 77 where there are no namespaces.
"""

import pathlib
import sys
import unittest
import xml.dom.minidom

sys.dont_write_bytecode = True  # no __pycache__ beside the sources
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from bottleneck.contestants import Program  # noqa: E402
from bottleneck.network import MTU, NotPossible, require_namespaces  # noqa: E402
from fairness import page  # noqa: E402
from fairness.chart import Panel, draw, steps  # noqa: E402
from fairness.flows import Samples, all_near, figures, first_time, jain, measure  # noqa: E402
from fairness.network import Network, address_of, can_delay  # noqa: E402
from fairness.rows import Flow, Row, all_rows, two  # noqa: E402

NOT_RUN = 77


def samples_of(rates_by_second):
    """Of flows that deliver so many bits in each second; looked at every tenth of one."""
    samples = Samples()
    samples.add(0, [0] * len(rates_by_second[0]))
    for second, rates in enumerate(rates_by_second):
        for tenth in range(1, 11):
            samples.add(second + tenth / 10, [before + rate / 80 for before, rate in zip(samples.counts[-1], rates)])
    return samples


class WhatIsCompared(unittest.TestCase):
    def test_index_is_one_for_equals_and_one_over_n_where_one_has_all(self):
        self.assertAlmostEqual(jain([3, 3, 3]), 1)
        self.assertAlmostEqual(jain([9, 0, 0]), 1 / 3)
        self.assertEqual(jain([0, 0]), 0)

    def test_rates_are_those_of_the_time_asked_for(self):
        samples = samples_of([[80, 0], [40, 40]])
        for found, wanted in zip(samples.rates(0, 1), [80, 0]):
            self.assertAlmostEqual(found, wanted)
        for found, wanted in zip(samples.rates(0.55, 1.45), [60, 20]):
            self.assertAlmostEqual(found, wanted)

    def test_flows_are_fair_once_they_stay_near_their_share(self):
        for rates, after in (([[80, 0]] * 2 + [[42, 38]] * 3, 2), ([[80, 0]] * 5, None)):
            found = first_time(samples_of(rates), 0, 5, all_near)
            if after is None:
                self.assertIsNone(found)
            else:
                self.assertAlmostEqual(found, after, delta=0.3)

    def test_every_row_compares_flows_while_all_of_them_are_there(self):
        rows = all_rows()
        self.assertEqual(len({(row.name, row.cut) for row in rows}), len(rows))
        for row in rows:
            begin, end = row.judged
            self.assertGreater(begin, row.joined())
            self.assertLessEqual(end, row.all_there())
            self.assertLess(begin, end)


class ThePictures(unittest.TestCase):
    def test_are_whole_and_name_their_axes_and_lines(self):
        row = two("without delay")
        found = figures(row, samples_of([[100e6, 50e6]] * 13), {"forwarded": 90, "dropped": 10}, 0,
                        [{"bytes_sent": 100, "bytes_retransmitted": 1}] * 2)
        self.assertAlmostEqual(found["dropped_share"], 0.1)
        picture = draw([page.panel_of_lines(found, page.title_of(found)), page.panel_of_many(found)], 2)
        words = [node.firstChild.data for node in xml.dom.minidom.parseString(picture).getElementsByTagName("text")]
        for word in ("first", "second", "half", "time (s)", "delivered (Mbit/s)", "No delay, queue 64 KiB"):
            self.assertIn(word, words)
        self.assertIn("| two Weir flows | none, 64 KiB | 100 : 50 |", page.table([found]))

    def test_axes_have_round_numbers(self):
        self.assertEqual(steps(250), [0, 50, 100, 150, 200, 250])
        self.assertEqual(steps(11), [0, 2, 4, 6, 8, 10])

    def test_text_is_escaped(self):
        self.assertIn("a &lt; b", draw([Panel("a < b", 1, 1)], 1))


SEND = f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(20):
        sender.sendto(bytes({MTU - 28}), ("{{}}", 9))
"""


@unittest.skipUnless(can_delay(), "there is no /dev/net/tun")
class TheNetwork(unittest.TestCase):
    def network(self, round_trip_ms):
        return Network(places=3, queue_bytes=64 << 10, round_trip_ms=round_trip_ms, delay_program=programs / "delay")

    def test_counts_what_each_place_was_sent(self):
        for round_trip_ms in (0, 10):
            with self.network(round_trip_ms) as network:
                network.server.run("ip", "route", "add", "blackhole", "10.91.1.0/24")  # says nothing about closed ports
                before = network.queue()
                network.client.run(sys.executable, "-c", SEND.format(address_of(1)))
                network.client.run("sleep", "0.1")
                self.assertEqual(network.queue()["forwarded"] - before["forwarded"], 20)
                self.assertEqual(network.delivered(), [0, 20 * MTU, 0])

    def test_delays_every_packet_by_half_a_round_trip_each_way(self):
        with self.network(10) as network:
            server = [sys.executable, "-c", "import socket\ns = socket.create_server(('" + address_of(2) + "', 9))\n"
                      "print('{}', flush=True)\ns.accept()[0].recv(1)"]
            client = ("import socket, time\nbegin = time.monotonic()\nsocket.create_connection(('" + address_of(2) +
                      "', 9)).close()\nprint(time.monotonic() - begin)")
            with Program(network.server, server):
                self.assertGreater(float(network.client.run(sys.executable, "-c", client)), 0.01)

    def test_a_row_tells_weir_and_tcp_apart(self):
        flows = [Flow("Weir", "weir", [0], 0, 1.5, paths=2, window=2), Flow("TCP", "cubic", [1], 0, 1.5)]
        found = measure(Row("small", "small", "10 ms", flows, (0.5, 1.5)), programs)
        for flow in found["flows"]:
            self.assertGreater(flow["mbit"], 0)
        self.assertGreater(found["flows"][0]["bytes_sent"], 0)
        self.assertEqual(found["flows"][0]["failed"], 0)
        self.assertIn("segments_retransmitted", found["flows"][1])
        self.assertLess(found["link_used"], 1.2)  # what waited in queues before comes on top


if __name__ == "__main__":
    programs = pathlib.Path(sys.argv.pop(1))
    try:
        require_namespaces()
    except NotPossible as why:
        print(f"not run: fairness: {why}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)
