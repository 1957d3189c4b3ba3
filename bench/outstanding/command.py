"""`./dev bench --case outstanding`: how many calls can be under way at once, and what each takes."""

import argparse
import os
import pathlib
import subprocess

MOST_BYTES = 256  # of a call on either side, beyond its payload
LEAST_HELD = 100_000


def main(arguments):
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser = argparse.ArgumentParser(prog="./dev bench --case outstanding", description=__doc__,
                                     epilog="Other options are passed on to the program: `BUILD/bench/outstanding/outstanding "
                                            "--help`, once it is built.")
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "bench",
                        help="the build folder (default: build/bench)")
    options, others = parser.parse_known_args(arguments)
    program = options.build / "bench" / "outstanding" / "outstanding"
    if not os.access(program, os.X_OK):
        print(f"not built: {program}")
        return 2
    goals = ["--most-bytes", str(MOST_BYTES), "--least-held", str(LEAST_HELD)]
    return subprocess.run([program, *goals, *others], stdin=subprocess.DEVNULL).returncode
