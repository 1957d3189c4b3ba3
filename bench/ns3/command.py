"""`./dev bench --case ns3`: bursts of calls in networks that ns-3 simulates, Weir beside ns-3's TCP.

The program is bench/ns3/burst of the preset ns3, which needs libns3-dev; this passes its arguments on.
"""

import os
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "ns3"


def main(arguments):
    program = BUILD / "bench" / "ns3" / "burst"
    if not os.access(program, os.X_OK):
        print(f"error: there is no {program}; ./dev bench --case ns3 installs libns3-dev and builds it", file=sys.stderr)
        return 2
    if not any(argument.split("=")[0] == "--json" for argument in arguments):
        arguments = [*arguments, "--json", str(BUILD / "ns3.json")]
    return subprocess.run([program, *arguments], check=False).returncode
