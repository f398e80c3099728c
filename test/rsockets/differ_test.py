#!/usr/bin/env python3
"""differ_test: programs that know TCP see the same over rsockets.

usage: differ_test HABITS ANYVERBS [PROGRAM...]
HABITS is habits.c, built; ANYVERBS the command. Each program of HABITS runs by TCP and by `anyverbs run --rsockets`; what they print is compared.
HABITS_RDMA has a program say so if TCP has a connection of its port after all.
"""
import os
import subprocess
import sys

SECONDS = 100
# A client that comes just after the server has forked, before it accepts, is refused, and connects by TCP.
TRIES = 4


def run(command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
                          check=False, env={**os.environ, **more})
    return done.stdout + (f"status {done.returncode}\n" if done.returncode else "")


def differ(habits, tool, name):
    tcp = run([habits, name])
    for _ in range(TRIES):
        ours = run([tool, "run", "--rsockets", habits, name], HABITS_RDMA="1")
        if "TCP has it" not in ours:
            break
    if tcp == ours and tcp:
        print(f"ok   {name}: {len(tcp.splitlines())} lines")
        return 0
    print(f"FAIL {name}")
    for who, text in (("TCP", tcp), ("rsockets", ours)):
        print(f"---- {who}\n{text}")
    return 1


def main():
    habits, tool = sys.argv[1:3]
    names = sys.argv[3:] or run([habits]).split()
    failed = sum(differ(habits, tool, name) for name in names)
    print(f"{len(names) - failed} of {len(names)} the same")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
