"""`./dev bench --case ns3`: bursts of calls in networks that ns-3 simulates, Weir beside ns-3's TCP.

The program is bench/ns3/burst of the preset ns3, which needs libns3-dev. Its arguments are passed on, but for
--write-figures, which puts the results into bench/ns3/README.md.
"""

import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = FOLDER.parent.parent / "build" / "ns3"
WRITE_FIGURES = "--write-figures"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"


def median_of(rounds):
    """As RowResult::median() has it."""
    later = sorted(rounds[1:] or rounds, key=lambda found: found["seconds"])
    return later[len(later) // 2]


def figures(results):
    """The tables, as Markdown."""
    lines = [f"ns-3 {results['ns3']}, seed {results['seed']}. The median round; in brackets the first.\n"]
    scenario = None
    for row in results["rows"]:
        if row["scenario"] != scenario:
            scenario = row["scenario"]
            lines += [f"\n| `{scenario}`, bound {1e3 * row['bound_s']:.3f} ms | time / bound | 99 % of calls | dropped | again | goodput "
                      "| p99 of the queue, KiB |\n", "|---|---|---|---|---|---|---|\n"]
        median, first = median_of(row["rounds"]), row["rounds"][0]
        cells = [form(median) + f" ({form(first)})" for form in (
            lambda found: f"{found['over_bound']:.2f}",
            lambda found: f"{found['most_over_bound']:.2f}",
            lambda found: f"{found['dropped_share']:.2%}".replace("%", " %"),
            lambda found: f"{found['retransmitted_share']:.2%}".replace("%", " %"),
            lambda found: f"{found['goodput']:.3f}",
            lambda found: f"{found['queue_p99_bytes'] / 1024:.1f}")]
        lines.append(f"| {row['contestant']} | {' | '.join(cells)} |\n")
    return "".join(lines)


def write_figures(results):
    page = FOLDER / "README.md"
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}{figures(results)}{END}{after}")
    print(f"written: {page}")


def main(arguments):
    program = BUILD / "bench" / "ns3" / "burst"
    if not os.access(program, os.X_OK):
        print(f"error: there is no {program}; ./dev bench --case ns3 installs libns3-dev and builds it", file=sys.stderr)
        return 2
    if WRITE_FIGURES not in arguments:
        if not any(argument.split("=")[0] == "--json" for argument in arguments):
            arguments = [*arguments, "--json", str(BUILD / "ns3.json")]
        return subprocess.run([program, *arguments], check=False).returncode
    if arguments != [WRITE_FIGURES]:
        print(f"error: {WRITE_FIGURES} goes alone: the figures are those of a whole run", file=sys.stderr)
        return 2
    written = BUILD / "ns3.json"
    status = subprocess.run([program, "--json", str(written)], check=False).returncode
    write_figures(json.loads(written.read_text()))
    return status
