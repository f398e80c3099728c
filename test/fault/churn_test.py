#!/usr/bin/env python3
"""churn_test: peers come, talk, and are killed, again and again: their survivor's descriptors, maps and memory stay.

usage: churn_test.py [--count N]
"""
import argparse
import sys

import fault

WARM = 20          # rounds after which everything that grows once has grown
RSS_SLACK_KB = 1024
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
    world.ends.remove(peer)
    return ""


def grown(before, after, slack):
    return [f"{key}: {before[key]} after {WARM} peers, {after[key]} at the end" for key in slack
            if after[key] > before[key] + slack[key]]


def settle(survivor, before):
    """The last peers' links are buried when the engine's thread comes by; what the survivor uses then, and what is too much."""
    deadline = fault.time.monotonic() + fault.PATIENCE_S
    while True:
        after = fault.usage(survivor)
        more = grown(before or after, after, {"descriptors": 0, "maps": 8, "threads": 0, "rss_kb": RSS_SLACK_KB})
        if not more or fault.time.monotonic() > deadline:
            return after, more
        fault.time.sleep(0.05)


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
                before = fault.usage(survivor)
            said = one_peer(world, survivor, number)
            if said:
                wrong.append(said)
                break
        status = world.wait_processes(survivor.pid)
        after, more = settle(survivor, before)
        print("before", before, "after", after)
        wrong += more
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
