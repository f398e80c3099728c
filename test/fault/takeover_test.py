#!/usr/bin/env python3
"""takeover_test: the node dies and none can be started for a while: connections go on, and newcomers find the survivors.

usage: takeover_test.py [unittest's arguments]
"""
import os
import time
import unittest

import fault

DAEMON = os.path.join(fault.BUILD, "bin", "anyverbsd")
AWAY_S = 1.5


class Takeover(unittest.TestCase):
    def setUp(self):
        self.world = fault.World()
        self.addCleanup(self.world.close)
        self.link = os.path.join(self.world.folder, "anyverbsd")
        os.symlink(DAEMON, self.link)
        self.world.environment["ANYVERBS_DAEMON"] = self.link

    def end(self, **env):
        end = self.world.end(**env)
        self.assertEqual(end.line(), "open")
        return end

    def check_newcomer(self, survivor):
        """A new process, which starts the new node, talks to one that was there before."""
        newcomer = self.end()
        fault.connect(newcomer, survivor, "send")
        fault.go(newcomer, survivor)
        self.assertTrue(fault.wait_progress(newcomer, 50), newcomer.ask("wait 0"))
        for end in (newcomer, survivor):
            self.assertEqual(end.expect("stop", "stopped"), ["0"])

    def check_away(self, kind, **env):
        sender, receiver = self.end(**env), self.end(**env)
        fault.connect(sender, receiver, kind)
        fault.go(sender, receiver)
        self.assertTrue(fault.wait_progress(sender, 20))
        os.unlink(self.link)
        self.world.kill_node()
        begin = time.monotonic()
        while time.monotonic() < begin + AWAY_S:
            self.assertTrue(fault.wait_progress(sender, 5), "the traffic stands still without a node")
        os.symlink(DAEMON, self.link)
        for end in (sender, receiver):
            self.assertEqual(end.expect("stop", "stopped"), ["0"])
        self.check_newcomer(receiver)
        self.check_newcomer(sender)

    def test_no_node_for_a_while(self):
        self.check_away("send")

    def test_no_node_for_a_while_by_events(self):
        self.check_away("event")

    def test_no_node_for_a_while_and_a_target_that_never_polls(self):
        self.check_away("write", ANYVERBS_DIRECT="0", END_NEVER_POLLS="1")

    def check_successor(self, kind):
        """A program with a higher limit of descriptors replaces the node; the traffic of those who have a low one goes on."""
        low = ("prlimit", "--nofile=60")
        sender, receiver = self.world.end(*low), self.world.end(*low)
        for end in (sender, receiver):
            self.assertEqual(end.line(), "open")
        first = self.world.node_pid()
        fault.connect(sender, receiver, kind)
        fault.go(sender, receiver)
        self.assertTrue(fault.wait_progress(sender, 20))
        self.check_newcomer_alone()
        self.assertNotEqual(self.world.node_pid(), first)
        self.assertTrue(fault.wait_progress(sender, 20), "the traffic stands still behind the change")
        for end in (sender, receiver):
            self.assertEqual(end.expect("stop", "stopped"), ["0"])
        self.check_newcomer(receiver)
        self.check_newcomer(sender)

    def check_newcomer_alone(self):
        for _ in range(5):
            self.end()

    def test_a_successor_with_a_higher_limit(self):
        self.check_successor("send")

    def test_a_successor_with_a_higher_limit_by_events(self):
        self.check_successor("event")

    def test_node_dies_while_pairs_are_made(self):
        """Many processes connect to each other while the node dies again and again."""
        for number in range(12):
            ends = [self.end() for _ in range(4)]
            for end in ends[1:]:
                end.expect("qp send receiver", "qp")
            self.world.kill_node()
            fault.connect(ends[0], ends[1], "send")
            self.world.kill_node()
            fault.connect(ends[2], ends[3], "write")
            for pair in (ends[:2], ends[2:]):
                fault.go(*pair)
                self.assertTrue(fault.wait_progress(pair[0], 20), f"round {number}: {pair[0].ask('wait 0')}")
            for end in ends:
                end.expect("stop", "stopped")
                self.assertEqual(end.quit(), (0, ""))
        status = self.world.wait_processes()
        self.assertEqual((status.get("processes"), status.get("slots_taken")), ([], 0))


if __name__ == "__main__":
    unittest.main()
