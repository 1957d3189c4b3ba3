#!/usr/bin/env python3
"""Reads every #include and fails on an edge between folders that is not in the list below.

Includes point downward. An edge that is missing here is a design decision: add it only with a reason, and never one
that makes a circle (this test refuses those too).

Protocol code does no I/O, reads no clock, rolls no dice and starts no thread: what the simulator runs is what users
run, and a seed decides all of it. Words that would change this are looked for, too, outside of tests.
"""
import pathlib
import re
import sys

API = "include/weir"

EDGES = {
    API: set(),
    "base": {API},
    "causality": {"base"},
    "wire": {"base"},
    "crypto": {"base"},
    "event": {"base"},
    "link": {"base"},
    "buffer": {"crypto", "event"},
    "schedule": {"wire", "crypto", "event"},
    "recovery": {"wire", "crypto", "event"},
    "peer": {"wire", "crypto", "event"},
    "token": {"wire", "crypto", "event", "buffer"},
    "transfer": {"wire", "crypto", "event", "buffer"},
    "engine": {"transfer", "token", "peer", "recovery", "schedule"},
    "router": {"engine"},
    "worker": {"engine"},
    "handshake": {"peer", "schedule"},
    "pool": {"causality", "router", "worker", "handshake"},
    "sim": {"pool"},
    "apps": {"pool", "sim"},
}

# Edges that the layers alone do not give: between siblings, and to the link's interface.
SIBLINGS = {
    "token": {"schedule"},  # who waits for credit waits by weight
    "transfer": {"token", "schedule"},
    "peer": {"recovery"},
    "worker": {"link"},
    "pool": {"link"},
    "sim": {"link"},
}

PROTOCOL = {"base", "causality", "wire", "crypto", "event", "buffer", "schedule", "recovery", "peer", "token", "transfer", "engine",
            "router"}

# What it is -> how it looks, and the folders that do without.
FORBIDDEN = {
    "input and output": (re.compile(r"[<](sys/(socket|epoll|event|mman|stat|ioctl)\.h|netinet/.*|arpa/.*|netdb\.h|poll\.h|"
                                    r"unistd\.h|fcntl\.h|fstream|iostream)[>]|\bfopen\("), PROTOCOL),
    "a clock": (re.compile(r"\b(steady|system|high_resolution|utc)_clock\b|\bclock_gettime\b|\bgettimeofday\b|"
                           r"\btime\((nullptr|NULL|0)\)|__builtin_ia32_rdtsc|__rdtsc"), PROTOCOL),
    "dice": (re.compile(r"[<]random[>]|\brandom_device\b|\bmt19937|\bgetrandom\b|\bgetentropy\b|\bs?rand\(|\bRAND_"),
             PROTOCOL),
    "a thread": (re.compile(r"[<](thread|condition_variable|future|pthread\.h)[>]|\bthis_thread\b|\bsched_yield\b"),
                 PROTOCOL),
    "a cryptographic library": (re.compile(r"[<](openssl|gnutls|ngtcp2|intel-ipsec-mb)\b"),
                                (PROTOCOL | {API, "link", "worker", "pool", "sim", "apps"}) - {"crypto"}),
}

# (file, what) -> why it may.
EXCEPTIONS = {
    ("src/base/address.cc", "input and output"): "reads and writes addresses as text",
    ("src/base/fork_guard.cc", "input and output"): "a page that the kernel clears in a child",
    ("src/base/fork_guard.cc", "a thread"): "pthread_atfork, where there is no such page",
    ("src/crypto/entropy.cc", "input and output"): "what the system's dice are read with",
    ("src/crypto/entropy.cc", "dice"): "the real ones; protocol code is given an Entropy",
    ("src/buffer/heap_memory.cc", "input and output"): "tells the system how it will use memory",
    ("src/buffer/page_source.cc", "input and output"): "asks the system for memory",
    ("src/buffer/file_source.cc", "input and output"): "memory that is a file",
    ("src/buffer/numa.cc", "input and output"): "asks the system about its memory",
    ("apps/weir/local_files.cc", "a cryptographic library"): "digests of files that are copied",
}
TESTS = re.compile(r"_(test|fuzz|bench)\.cc$|_testing\.(h|cc)$")
COMMENT = re.compile(r"//.*")

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^">]+)[">]')


def closure(edges):
    """Every layer may use what the layers below it may use."""
    reached = {}

    def visit(folder, path):
        if folder in path:
            sys.exit(f"the list of edges has a circle: {' -> '.join(path + (folder,))}")
        if folder not in reached:
            below = set(edges[folder])
            for other in edges[folder]:
                below |= visit(other, path + (folder,))
            reached[folder] = below
        return reached[folder]

    for folder in edges:
        visit(folder, ())
    return reached


def folder_of(path):
    """The folder that a file, given by its path from the root, belongs to."""
    parts = path.parts
    if parts[:2] == ("include", "weir"):
        return API
    if parts[0] == "src":
        return parts[1]
    return parts[0]


def target_of(include, folders):
    """The folder that an #include names, or None if it is not ours."""
    first = include.split("/")[0]
    if "/" not in include:
        return None
    if first == "weir":
        return API
    if first == "src":
        return include.split("/")[1]
    return first if first in folders else None


def violations(root, allowed):
    count = 0
    for top in ("include", "src", "sim", "apps"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            name = path.relative_to(root)
            folder = folder_of(name)
            if folder not in allowed:
                yield f"{name}: the folder {folder} is not in the list of edges"
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                target = match and target_of(match.group(1), allowed)
                if not target:
                    continue
                count += 1
                if target != folder and target not in allowed[folder]:
                    yield f"{name}:{number}: {folder} may not include {target}: {line.strip()}"
    if count == 0:
        yield "no include between folders was found: is the root right?"


def forbidden_words(root):
    used = set()
    for top in ("include", "src", "sim", "apps"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cc") or TESTS.search(path.name):
                continue
            name = path.relative_to(root)
            rules = [(what, words) for what, (words, folders) in FORBIDDEN.items() if folder_of(name) in folders]
            for number, line in enumerate(path.read_text().splitlines(), 1):
                code = COMMENT.sub("", line)
                for what, words in rules:
                    if not words.search(code):
                        continue
                    if (str(name), what) in EXCEPTIONS:
                        used.add((str(name), what))
                    else:
                        yield f"{name}:{number}: {what} is not for {folder_of(name)}: {line.strip()}"
    for name, what in sorted(EXCEPTIONS.keys() - used):
        yield f"{name} does without {what}: it needs no exception any more"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    edges = {folder: below | SIBLINGS.get(folder, set()) for folder, below in EDGES.items()}
    found = [*violations(root, closure(edges)), *forbidden_words(root)]
    print("\n".join(found) if found else "every include points downward, and protocol code keeps to itself")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
