"""What was measured, in docs/congestion.md: a table between two marks, and the pictures that the page shows."""

import pathlib

from fairness.chart import Panel, draw
from fairness.flows import INTERVAL_S, sent_again
from fairness.network import RATE_BITS

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs"
PAGE, FIGURES = DOCS / "congestion.md", DOCS / "figures"
BEGIN, END = "<!-- fairness -->\n", "<!-- end of fairness -->\n"
COLOURS = {"weir": "#1864ab", "cubic": "#2b8a3e", "bbr": "#c92a2a"}
SECOND_OF_A_KIND = "#e8710a"
MEAN_OF = 5  # looks, so that lines can be read
TWO, FIFTY, BESIDE_TCP = "fairness-two.svg", "fairness-fifty.svg", "fairness-tcp.svg"
PICTURES = {"two": TWO, "two4": TWO, "fifty": FIFTY}  # by the name of a row; others are in BESIDE_TCP
NAMES = {"two": "two Weir flows", "two4": "two Weir flows of 4 paths", "fifty": "fifty Weir flows"}


def smooth(values):
    """The mean of each value and its neighbours."""
    reach = MEAN_OF // 2
    return [sum(values[max(0, k - reach):k + reach + 1]) / len(values[max(0, k - reach):k + reach + 1])
            for k in range(len(values))]


def rates_of_flows(found):
    """Of each flow, which may have several places."""
    at = 0
    for flow in found["flows"]:
        count = len(found["series"]) // len(found["flows"])
        yield [sum(values) for values in zip(*found["series"][at:at + count])]
        at += count


def title_of(found):
    return f"{'No delay' if not found['round_trip_ms'] else found['cut'] + ' round trip'}, queue {queue_of(found)}"


def queue_of(found):
    return f"{found['queue_bytes'] / 1024:.0f} KiB"


def panel_of_lines(found, title):
    panel = Panel(title, found["seconds"], RATE_BITS / 1e6)
    used = set()
    for flow, rates in zip(found["flows"], rates_of_flows(found)):
        colour = SECOND_OF_A_KIND if flow["kind"] in used else COLOURS[flow["kind"]]
        used.add(flow["kind"])
        points = [(when, rate) for when, rate in zip(found["times"], smooth(rates))
                  if flow["start"] <= when + INTERVAL_S and when <= flow["end"] + INTERVAL_S]
        panel.lines.append((flow["name"], colour, points))
    panel.marks.append(("half", RATE_BITS / 2e6))
    return panel


def panel_of_many(found):
    count = len(found["series"])
    fair = RATE_BITS / 1e6 / count
    panel = Panel(title_of(found), found["seconds"], 3 * fair)
    each = list(zip(*(smooth(values) for values in found["series"])))
    panel.bands.append((f"{count} flows, least to most", COLOURS["weir"],
                        [(when, min(rates), max(rates)) for when, rates in zip(found["times"], each)]))
    panel.lines.append(("mean", COLOURS["weir"],
                        [(when, sum(rates) / count) for when, rates in zip(found["times"], each)]))
    panel.marks.append(("an equal share", fair))
    return panel


def draw_figures(results):
    FIGURES.mkdir(exist_ok=True)
    names = list(dict.fromkeys(found["name"] for found in results))
    pictures = {TWO: [], FIFTY: [], BESIDE_TCP: []}
    for found in sorted(results, key=lambda found: names.index(found["name"])):
        panel = panel_of_many(found) if found["name"] == "fifty" else panel_of_lines(found, title_of(found))
        pictures[PICTURES.get(found["name"], BESIDE_TCP)].append(panel)
    for name, panels in pictures.items():
        (FIGURES / name).write_text(draw(panels, 2))
        print(f"written: {FIGURES / name}")


def percent(share):
    return f"{share:.2%}".replace("%", " %") if share < 0.1 else f"{share:.0%}".replace("%", " %")


def what(found):
    if found["name"] in NAMES:
        return NAMES[found["name"]]
    return " beside ".join(flow["name"] for flow in found["flows"])


def each_mbit(found):
    if found["name"] == "fifty":
        return f"{found['least_mbit']:.1f} to {found['most_mbit']:.1f}"
    return " : ".join(f"{flow['mbit']:.0f}" for flow in found["flows"])


def again(found):
    shares = [sent_again(flow) for flow in found["flows"] if sent_again(flow) is not None]
    return percent(max(shares)) if shares else ""


def fair_after(found):
    return "not" if found["seconds_to_fair"] is None else f"{found['seconds_to_fair']:.1f} s"


def table(results):
    lines = ["| flows | round trip, queue | Mbit/s of each | Jain's index | fair after | link used | dropped | Weir sent "
             "again |\n", "|---|---|---|---|---|---|---|---|\n"]
    for found in sorted(results, key=lambda found: [r["name"] for r in results].index(found["name"])):
        trip = f"{found['round_trip_ms']} ms" if found["round_trip_ms"] else "none"
        lines.append(f"| {what(found)} | {trip}, {queue_of(found)} | {each_mbit(found)} | {found['jain']:.2f} | "
                     f"{fair_after(found)} | {percent(found['link_used'])} | {percent(found['dropped_share'])} | "
                     f"{again(found)} |\n")
    return "".join(lines)


def figures(report):
    machine = report["machine"]
    two = {found["cut"]: found for found in report["results"] if found["name"] == "two"}
    filled = ", ".join("never" if found["seconds_to_fill"] is None else f"{found['seconds_to_fill']:.1f} s"
                       for found in two.values())
    return (f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}.\n\n{table(report['results'])}\n"
            f"When the first of two Weir flows leaves, the other one fills four fifths of the link within {filled}.\n")


def write(report):
    draw_figures(report["results"])
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{figures(report)}{END}{after}")
    print(f"written: {PAGE}")
