#!/usr/bin/env python3
"""Compares what a library exports with the lists of what it must export.

usage: compare_exports.py LIBRARY LIST.tsv...

Each line of a list: symbol, version node, default or compat, FUNC or OBJECT. Prints what is missing, what is too much
and what differs; exits 1 if there is any difference, 2 if the library cannot be read.
"""
import subprocess
import sys

TYPES = {"T": "FUNC", "W": "FUNC", "i": "FUNC", "B": "OBJECT", "D": "OBJECT", "R": "OBJECT", "V": "OBJECT"}


def wanted(paths):
    rows = []
    for path in paths:
        with open(path) as lines:
            rows += [line.rstrip("\n").split("\t") for line in lines if line.strip() and not line.startswith("#")]
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def exported(path):
    result = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True)
    if result.returncode:
        print(f"nm {path}: {result.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    found = {}
    for line in result.stdout.splitlines():
        kind, symbol = line.split()[-2:]
        if kind == "A":  # the version nodes themselves
            continue
        default = "@@" in symbol
        name, _, node = symbol.replace("@@", "@").partition("@")
        found[(name, node)] = ("default" if default else "compat", TYPES.get(kind, kind))
    return found


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    want, have = wanted(sys.argv[2:]), exported(sys.argv[1])
    wrong = []
    for key in sorted(set(want) | set(have)):
        name = "@".join(key)
        if key not in have:
            wrong.append(f"missing: {name}")
        elif key not in want:
            wrong.append(f"not on the list: {name}")
        elif want[key] != have[key]:
            wrong.append(f"{name}: {' '.join(have[key])}, should be {' '.join(want[key])}")
    print("\n".join(wrong) if wrong else f"{len(have)} exports, all as listed")
    return 1 if wrong or not want else 0


if __name__ == "__main__":
    sys.exit(main())
