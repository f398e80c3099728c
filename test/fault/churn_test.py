#!/usr/bin/env python3
"""churn_test: peers come, talk, and are killed, again and again: their survivor's descriptors, maps and memory stay.

usage: churn_test.py [--count N]
"""
import argparse
import os
import re
import sys

import fault

WARM = 20          # rounds after which everything that grows once has grown
RSS_SLACK_KB = 1024
OF_A_PROCESS = re.compile(r"anon_inode:\[pidfd\]|/proc/\d+/mem")
KINDS = ("send", "write", "read", "big", "atomic", "event", "ud", "uc")


def one_peer(world, survivor, number):
    kind = KINDS[number % len(KINDS)]
    peer = world.end()
    peer.line()
    roles = (survivor, peer) if number // len(KINDS) % 2 else (peer, survivor)
    fault.connect(*roles, kind)
    fault.go(*roles)
    if not fault.wait_progress(roles[0]):
        return f"round {number}: {kind}: no traffic"
    if number % 5 == 4:
        peer.quit()
    else:
        peer.kill()
    survivor.expect("stop", "stopped")
    survivor.expect("forget", "forgotten")
    world.ends.remove(peer)
    return ""


def links(survivor):
    """How many descriptors the survivor holds of other processes: the pidfd, which goes when the death is noticed, and
    the address space, which the link's burial closes last."""
    count = 0
    folder = f"/proc/{survivor.pid}/fd"
    for name in os.listdir(folder):
        try:
            count += OF_A_PROCESS.fullmatch(os.readlink(os.path.join(folder, name))) is not None
        except FileNotFoundError:
            pass
    return count


def usage(survivor):
    """What the survivor uses once the dead peers' links are buried, by the engine's thread; None: they are not."""
    deadline = fault.time.monotonic() + fault.PATIENCE_S
    while links(survivor) > 0:
        if fault.time.monotonic() > deadline:
            return None
        fault.time.sleep(0.02)
    return fault.usage(survivor)


def grown(before, after):
    if before is None or after is None:
        return ["links with dead peers stay"]
    slack = {"descriptors": 0, "maps": 8, "threads": 0, "rss_kb": RSS_SLACK_KB}
    return [f"{key}: {before[key]} after {WARM} peers, {after[key]} at the end" for key in slack
            if after[key] > before[key] + slack[key]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    wrong, before = [], None
    with fault.World() as world:
        survivor = world.end()
        survivor.line()
        for number in range(options.count):
            if number == WARM:
                before = usage(survivor)
            said = one_peer(world, survivor, number)
            if said:
                wrong.append(said)
                break
        status = world.wait_processes(survivor.pid)
        after = usage(survivor)
        print("before", before, "after", after)
        wrong += grown(before, after)
        if len(status["processes"]) != 1 or status["slots_taken"] != 1 or status["pairs"] != 0:
            wrong.append(f"the node keeps {status}")
        done, said = survivor.quit()
        if done != 0 or said:
            wrong.append(f"the survivor ended with {done}: {said}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
