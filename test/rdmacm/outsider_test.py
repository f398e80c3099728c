#!/usr/bin/env python3
"""outsider_test.py: programs by one who knows rsockets from their man page see what they see with TCP and UDP.

usage: outsider_test.py OUTSIDER [PROGRAM...]
OUTSIDER is outsider.c, built.
"""
import difflib
import subprocess
import sys

SECONDS = 100


def run(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
                              check=False)
    except subprocess.TimeoutExpired as e:
        return (e.stdout or b"").decode() + f"still runs after {SECONDS} s\n"
    return done.stdout + (f"status {done.returncode}\n" if done.returncode else "")


def differ(outsider, name):
    tcp, rdma = run(outsider, "tcp", name), run(outsider, "rdma", name)
    if tcp == rdma and tcp:
        print(f"ok   {name}: {len(tcp.splitlines())} lines")
        return 0
    print(f"FAIL {name}")
    print("\n".join(difflib.unified_diff(tcp.splitlines(), rdma.splitlines(), "TCP", "rsockets", lineterm="", n=3)), flush=True)
    return 1


def main():
    outsider, *names = sys.argv[1:]
    names = names or run(outsider).split()
    failed = sum(differ(outsider, name) for name in names)
    print(f"{len(names) - failed} of {len(names)} the same")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
