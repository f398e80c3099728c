#!/usr/bin/env python3
"""kill_test: kill -9 of sender, receiver or node at random instants of every kind of transfer.

usage: kill_test.py [--count N] [--seed S] [--seconds LIMIT] [--only KIND] [--victim sender|receiver|node]

The survivor must end with an error completion or go on, nothing may hang or stay behind in the node, and the next
pair must start clean. The seed is printed; a failure prints the command that repeats its round.
"""
import argparse
import os
import random
import signal
import sys
import time

import fault

KINDS = ("send", "big", "uc", "ud", "write", "write_ring", "read", "read_ring", "atomic", "event")
VICTIMS = ("sender", "receiver", "node")
UNRELIABLE = ("uc", "ud")
EARLY = 0.25      # share of the rounds in which the victim dies while it starts and connects
QUIET_MS = 200    # in which a survivor that need not hear of it may: the retries take 4 * 17 ms
KEPT = 8          # descriptors of the node: one for each slot that was in use at once, a tool's connection
EXPECTED = (fault.FLUSHED, fault.RETRY_EXCEEDED)


class Wrong(Exception):
    pass


def need(truth, what):
    if not truth:
        raise Wrong(what)


class Round:
    def __init__(self, world, kind, victim, rng):
        self.world, self.kind, self.victim = world, kind, victim
        self.early = victim != "node" and rng.random() < EARLY
        self.delay = rng.uniform(0, 0.06 if self.early else 0.03)
        env = {"ANYVERBS_DIRECT": "0"} if kind.endswith("_ring") else {}
        self.verb = kind.removesuffix("_ring")
        self.ends = {role: world.end(**env) for role in ("sender", "receiver")}

    def __str__(self):
        return f"{self.kind}: {self.victim} dies {self.delay * 1000:.1f} ms after {'its start' if self.early else 'go'}"

    def connect(self):
        for end in self.ends.values():
            end.line()
        fault.connect(self.ends["sender"], self.ends["receiver"], self.verb)
        fault.go(self.ends["sender"], self.ends["receiver"])

    def run(self):
        if self.early:
            self.run_early()
        elif self.victim == "node":
            self.run_node()
        else:
            self.run_late()

    def run_early(self):
        """The victim dies before, while or shortly after the two connect; the survivor may see none of it."""
        begin, victim = time.monotonic(), self.ends[self.victim]
        child = os.fork()
        if child == 0:
            time.sleep(max(0, begin + self.delay - time.monotonic()))
            os.kill(victim.pid, signal.SIGKILL)
            os._exit(0)
        try:
            self.connect()
        except fault.Gone as gone:
            os.waitpid(child, 0)
            need(victim.process.wait(fault.PATIENCE_S) == -9, f"somebody else ended: {gone}")
        else:
            os.waitpid(child, 0)
            self.check_survivor(certain=self.victim == "receiver")
        self.end_survivor()

    def run_late(self):
        self.connect()
        time.sleep(self.delay)
        self.ends[self.victim].kill()
        self.check_survivor(certain=True)
        self.end_survivor()

    def survivor(self):
        return self.ends["receiver" if self.victim == "sender" else "sender"]

    def check_survivor(self, certain):
        """Connected, the victim dead: a reliable sender and a waiting receiver learn of it, an unreliable one goes on."""
        must = certain and self.verb not in UNRELIABLE
        words = (self.survivor().wait_error() if must else self.survivor().ask(f"wait {QUIET_MS}")).split()
        if self.verb in UNRELIABLE:
            need(words[0] == "running", f"an unreliable survivor ended with status {words[1:]}")
            if self.victim == "receiver":
                need(fault.wait_progress(self.survivor(), 20), "an unreliable sender's sends do not complete any more")
        elif words[0] == "ended":
            need(int(words[1]) in EXPECTED, f"the survivor's completion has status {words[1]}")
        else:
            need(not certain, "the survivor has no completion in error")

    def end_survivor(self):
        survivor = self.survivor()
        survivor.tell("stop")
        self.end_well(survivor)
        self.ends[self.victim].kill()

    def end_well(self, end):
        status, said = end.quit()
        need(status == 0, f"exit status {status}: {said}")
        need(not said, f"it printed {said}")

    def run_node(self):
        sender, receiver = self.ends["sender"], self.ends["receiver"]
        self.connect()
        time.sleep(self.delay)
        need(self.world.kill_node(), "there is no node")
        need(fault.wait_progress(sender, 20), "the traffic stopped with the node")
        pair = [self.world.end(), self.world.end()]
        for end in pair:
            end.line()
        fault.connect(*pair, "send")
        fault.go(*pair)
        need(fault.wait_progress(pair[0], 20), "a new pair does not work after the takeover")
        for end in (sender, receiver, *pair):
            words = end.ask("wait 0").split()
            need(words[0] == "running", f"a connection broke with status {words[1:]}")
        for first, second in ((sender, receiver), pair):
            for end in (first, second):
                end.expect("stop", "stopped")
            self.end_well(first)
            self.end_well(second)


def check_clean(world):
    """What the dead left behind: nothing."""
    status = world.wait_processes()
    need(status.get("running"), f"no node: {status}")
    need(not status["processes"], f"the node still lists {status['processes']}")
    need(status["slots_taken"] == 0, f"{status['slots_taken']} slots are taken by nobody")
    need(status["pairs"] == 0, f"{status['pairs']} pairs are left")
    need(status["multicast"] == 0, f"{status['multicast']} memberships are left")


def node_descriptors(world):
    return len(os.listdir(f"/proc/{world.node_pid()}/fd"))


def one_round(world, seed, number, options):
    rng = random.Random(f"{seed}/{number}")
    kind = options.only or KINDS[number % len(KINDS)]
    victim = options.victim or VICTIMS[number // len(KINDS) % len(VICTIMS)]
    test = Round(world, kind, victim, rng)
    try:
        test.run()
        check_clean(world)
    except (Wrong, fault.Gone) as wrong:
        print(f"round {number}: {test}: {wrong}\n  again: kill_test.py --seed {seed} --first {number} --count 1", flush=True)
        return False
    finally:
        for end in test.ends.values():
            end.kill()
        world.ends.clear()
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=840)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--victim", choices=VICTIMS)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    begin, done, failed = time.monotonic(), 0, 0
    with fault.World() as world:
        before = None
        for number in range(options.first, options.first + options.count):
            if time.monotonic() - begin > options.seconds:
                print(f"out of time after {done} rounds: this machine is too slow for {options.count}")
                failed += 1
                break
            failed += not one_round(world, seed, number, options)
            done += 1
            before = before or node_descriptors(world)
        after = node_descriptors(world)
        if before and after > before + KEPT:
            print(f"the node has {after} descriptors, {before} after the first round")
            failed += 1
    print(f"{done} rounds in {time.monotonic() - begin:.0f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
