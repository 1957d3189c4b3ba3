#!/usr/bin/env python3
"""The program that README.md shows is examples/hello.cc, word for word, so it is known to compile and to run."""
import difflib
import pathlib
import re
import sys


def program(text):
    """The text from its first #include on: an opening comment is for readers of the file only."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    first = next((i for i, line in enumerate(lines) if line.startswith("#include")), 0)
    return lines[first:]


def main():
    root = pathlib.Path(sys.argv[1])
    readme = (root / "README.md").read_text()
    blocks = [block for block in re.findall(r"^```(?:cpp|c\+\+)\n(.*?)^```", readme, re.S | re.M) if "int main" in block]
    if not blocks:
        print("README.md shows no program with a main")
        return 1
    example = program((root / "examples/hello.cc").read_text())
    difference = list(difflib.unified_diff(example, program(blocks[0]), "examples/hello.cc", "README.md", lineterm=""))
    print("\n".join(difference) if difference else "README.md shows examples/hello.cc")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
