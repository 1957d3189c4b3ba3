#!/usr/bin/env python3
"""Reads every #include and fails on an edge between folders that is not in the list below.

Includes point downward. An edge that is missing here is a design decision: add it only with a reason, and never one
that makes a circle (this test refuses those too).
"""
import pathlib
import re
import sys

API = "include/weir"

EDGES = {
    API: set(),
    "base": {API},
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
    "pool": {"router", "worker", "handshake"},
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


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    edges = {folder: below | SIBLINGS.get(folder, set()) for folder, below in EDGES.items()}
    found = list(violations(root, closure(edges)))
    print("\n".join(found) if found else "every include points downward")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
