#!/usr/bin/env python3
"""The errors that docs/identity.md explains are errors that the library makes, word for word."""
import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1])
    table = (root / "docs/identity.md").read_text().split("| the error says | usually |")[1].split("\n\n")[0]
    sentences = re.findall(r"^\| (?!---)(.+?) \|", table, re.M)
    if len(sentences) < 5:
        print("docs/identity.md has no table of errors")
        return 1
    sources = [path for folder in ("handshake", "engine") for path in (root / "src" / folder).glob("*.cc")
               if not path.stem.endswith("_test")]
    # Literals that are written in several pieces, one behind the other, are one.
    text = "\n".join(re.sub(r'"\s*\n\s*"', "", path.read_text()) for path in sources).replace('\\"', '"')
    wrong = [piece for sentence in sentences for piece in sentence.split("...")
             if piece.strip(' "') and piece.strip(' "') not in text]
    for piece in wrong:
        print(f"docs/identity.md says an error says {piece.strip()!r}; no source does")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
