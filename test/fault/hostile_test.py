#!/usr/bin/env python3
"""hostile_test: a local peer that scribbles over everything that it may write, with direct access off at the victim.

usage: hostile_test.py [--seconds N] [--seed S]

The victim must not crash, drop with a counter, keep every byte that no key gives away, and serve its friend meanwhile.
"""
import argparse
import random
import sys

import fault

# What must have been dropped for a reason of its own; the attack is aimed at each.
COUNTED = ("rx_malformed", "rx_no_qp", "rx_wrong_peer", "rx_wrong_opcode", "rx_psn_errors", "rx_wrong_qkey",
           "rx_wrong_length", "rx_duplicates", "tx_naks")


def attack(world, seed, seconds):
    victim = world.start(fault.program("victim"), ANYVERBS_DIRECT="0")
    friend = world.start(fault.program("victim"), "friend", ANYVERBS_DIRECT="0")
    hostile = world.start(fault.program("hostile"), str(seed))
    *targets, gid = victim.line().split()[1:]
    qpn, gid = friend.line().split()[1:]
    enemy = hostile.line().split()[1:]
    own = victim.ask(f"friend {qpn} {gid}").split()[1]
    friend.ask(f"friend {own} {gid}")
    friend.expect(f"go {seed}", "going")
    hostile.tell(f"attack {seconds} " + " ".join(targets))
    victim.expect(f"connect {' '.join(enemy)} {gid}", "connected")
    victim.expect(f"go {seed}", "going")
    done = hostile.line(seconds + fault.PATIENCE_S).split()
    return victim, friend, hostile, done


def judge(victim, friend, done):
    wrong = []
    slots, leaks = int(done[1]), int(done[2])
    counters = {k: int(n) for k, n in (word.split("=") for word in done[3:])}
    print(f"{slots} slots", " ".join(f"{k}={n}" for k, n in counters.items() if n))
    if leaks:
        wrong.append(f"{leaks} runs of bytes that no key gives away have travelled")
    wrong += [f"nothing was counted as {name}" for name in COUNTED if counters[name] == 0]
    for name, end in (("victim", victim), ("friend", friend)):
        said = end.ask("check")
        print(f"{name}: {said}")
        if not said.startswith("fine"):
            wrong.append(f"{name}: {said}")
    return wrong


def goes_on(victim):
    """Whether its traffic with its friend does; what is broken has been said."""
    begin, deadline = victim.ask("check").split(), fault.time.monotonic() + fault.PATIENCE_S
    while fault.time.monotonic() < deadline:
        now = victim.ask("check").split()
        if begin[0] != "fine" or now[0] != "fine" or int(now[1]) > int(begin[1]):
            return True
        fault.time.sleep(0.01)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with fault.World() as world:
        try:
            victim, friend, hostile, done = attack(world, options.seed, options.seconds)
            wrong = judge(victim, friend, done)
            hostile.kill()
            # the enemy is gone: the friend's traffic goes on, and both end in good order
            if not goes_on(victim):
                wrong.append("the victim's traffic with its friend has stopped")
            victim.expect("rest", "resting")
            friend.expect("rest", "resting")
        except fault.Gone as gone:
            wrong = [f"somebody {gone}"] + [f"process {e.pid} has status {e.process.poll()}: {e.errors()}" for e in world.ends]
            victim = friend = None
        for name, end in (("victim", victim), ("friend", friend)):
            if end is not None:
                status, said = end.quit()
                if status != 0 or said:
                    wrong.append(f"{name} ended with {status}: {said}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
