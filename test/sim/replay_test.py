#!/usr/bin/env python3
"""replay_test: one seed is one history. usage: replay_test.py SIMULATE [SEEDS-FILE]

Runs some seeds twice with a trace: every line must be the same; and once without: the hash must be the same too. Different seeds
differ. With a file, runs each seed of it (regressions), once.
"""
import re
import subprocess
import sys

SEEDS = [3, 7, 44, 58, 167, 214, 921, 1620]


def run(program, *arguments):
    done = subprocess.run([program, *arguments], text=True, errors="replace", capture_output=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{arguments}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def main():
    program = sys.argv[1]
    if len(sys.argv) == 3:
        with open(sys.argv[2], encoding="utf-8") as f:
            seeds = [line.split()[0] for line in f if line.strip() and not line.startswith("#")]
        for seed in seeds:
            run(program, seed)
        print(f"{len(seeds)} seeds passed")
        return 0
    hashes = set()
    for seed in SEEDS:
        first, second, silent = (run(program, *options, str(seed)) for options in (["--trace"], ["--trace"], []))
        if first != second:
            line = next(n for n, (a, b) in enumerate(zip(first.splitlines(), second.splitlines()), 1) if a != b)
            sys.exit(f"seed {seed}: two runs differ at line {line}")
        if first.splitlines()[-1] != silent.splitlines()[-1]:
            sys.exit(f"seed {seed}: a trace changes what happens")
        if len(first.splitlines()) < 50:
            sys.exit(f"seed {seed}: hardly anything happens")
        hashes.add(re.search(r"hash (\w+)", silent)[1])
    if len(hashes) != len(SEEDS):
        sys.exit("two seeds have one history")
    print(f"{len(SEEDS)} seeds replay to the same event")
    return 0


if __name__ == "__main__":
    sys.exit(main())
