"""What a datagram of a stranger costs, in instructions: at most one tag check of its size and a fixed allowance.

    stranger_cost_test.py <the program stranger_cost>

The program is run under callgrind, which counts instructions and is not disturbed by other load, so this measures
without being a timed test. Each kind of datagram is sent N and 2N times; the difference is the cost of N.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

DATAGRAMS = 96  # a multiple of what the program repeats
SKIPPED = 77

# Instructions on top of one tag check of a datagram of the same size: looking at the header, finding the path, checking
# the number, wiping what did not open, counting and reporting it.
ALLOWANCE = 350

# The same program measures what a few kinds may cost beside that; each part is less than the smallest tag check.
PARTS = {
    "key setup": "a packet's key that has no schedule is set up in the engine's one spare key",
    "mac key": "the key of the credential that a hello, reply or first packet names, for one CMAC",
    "cookie": "the responder's random of an exchange, which the answer to a hello carries",
}
EXTRA = {
    "random": (),
    "truncated": (),
    "unknown path, answered": (),
    "unknown path, over the limit": (),
    "replayed": (),
    "forged, active path": (),
    "forged, active path, next key": ("key setup",),
    "forged, active path, unknown key": (),
    "forged, idle path": ("key setup",),
    "hello, malformed": (),
    "hello, answered": ("cookie",),
    "hello, over the limit": (),
    "first, unknown exchange": (),
    "first, unused exchange": (),
    "first, path of the exchange": (),
    "first, replayed": (),
    "hello_reply": (),
    "hello_reply of one who saw the hello": (),
    "notice of an unknown path": (),
    "notice of an unknown secret": (),
    "known credential, hello": ("mac key",),
    "known credential, first": ("mac key",),
    "known credential, hello_reply": (),
    "known credential, hello_reply of one who saw the hello": ("mac key",),
    "known credential, notice of one who saw the hello": (),
    "unknown credential, hello": (),
    "unknown credential, first": (),
}


def measure(program, arguments):
    """Instructions for one datagram, by (kind, size)."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=weir_measured_*"]
        command += ["--dump-before=weir_cost_mark*", f"--callgrind-out-file={out}"]
        command += [program, str(DATAGRAMS), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"{program} failed under callgrind:\n{run.stdout}{run.stderr}")
        lines = run.stdout.splitlines()
        totals = [
            int(re.search(r"^totals: (\d+)", pathlib.Path(f"{out}.{part}").read_text(), re.M)[1])
            for part in range(1, len(lines) + 1)
        ]
    counts = {}
    for line, total in zip(lines, totals):
        if "|" in line:
            kind, size, times = line.split("|")
            counts.setdefault((kind, int(size)), {})[int(times)] = total
    return {key: round((of[2 * DATAGRAMS] - of[DATAGRAMS]) / DATAGRAMS) for key, of in counts.items()}


def judge(costs):
    checks = {size: cost for (kind, size), cost in costs.items() if kind == "tag check"}
    parts = {part: costs[(part, 0)] for part in PARTS}
    failures = [f"'{kind}' was not measured" for kind in EXTRA if kind not in {kind for kind, _ in costs}]
    for part, why in PARTS.items():
        if parts[part] > checks[min(checks)]:
            failures.append(f"'{part}' costs {parts[part]} instructions, more than the smallest tag check")
        print(f"  {part:10} {parts[part]:6}  {why}")
    print(f"  {'instructions':54} {'bytes':>6} {'cost':>7} {'tag check':>10} {'allowed':>8}")
    for (kind, size), cost in costs.items():
        if kind == "tag check" or kind in PARTS:
            continue
        check = checks.get(size, 0)
        allowed = check + ALLOWANCE + sum(parts[part] for part in EXTRA[kind])
        print(f"  {kind:54} {size:6} {cost:7} {check:10} {allowed:8}")
        if not 0 < cost <= allowed:
            failures.append(f"'{kind}' of {size} bytes costs {cost} instructions, {allowed} are allowed")
    return failures


def main():
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        return SKIPPED
    failures = []
    for arguments in ([], ["openssl"]):
        print("OpenSSL:" if arguments else "the default cryptographic library:")
        failures += judge(measure(sys.argv[1], arguments))
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
