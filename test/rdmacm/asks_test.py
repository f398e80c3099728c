#!/usr/bin/env python3
"""asks_test.py: clients of another host that ask an rsocket listener for connections and do not complete them.

usage: asks_test.py BUILD_DIR
"""
import os
import unittest

from nodes import HOSTS, NodesTest

BACKLOG, ASKS, LANES = 2, 20, 8  # lanes: what the UDP path opens for a host


class AsksTest(NodesTest):
    def setUp(self):
        super().setUp()
        self.listener = self.start("a", "rdmacm_asks", "listen", HOSTS["a"], str(BACKLOG))
        self.port = self.listener.stdout.readline().strip()
        self.assertRegex(self.port, r"^\d+$", "the listener does not listen")
        self.connect()  # what the first connection needs

    def said(self, child):
        line = child.stdout.readline().strip()
        return line or child.communicate()[1]

    def client(self, *words):
        return self.start("b", "rdmacm_asks", words[0], HOSTS["a"], self.port, *words[1:])

    def order(self, line):
        self.listener.stdin.write(line + "\n")
        self.listener.stdin.flush()
        return self.said(self.listener)

    def connect(self):
        self.assertEqual(self.said(self.client("connect")), "connected")
        self.assertEqual(self.order("accept"), "accepted")

    def descriptors(self):
        pid = self.listener.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            pid = int((f.read().split() or [pid])[0])
        return len(os.listdir(f"/proc/{pid}/fd"))

    def test_ask_and_are_silent(self):
        """Each is answered, the oldest gives way, and none takes a descriptor; an honest client is accepted at once."""
        before = self.descriptors()
        self.assertEqual(self.said(self.client("ask", str(ASKS))), f"answered {ASKS}")
        self.assertLessEqual(self.descriptors(), before + LANES)
        self.connect()
        self.connect()

    def test_first_packet_counts_as_the_rtu(self):
        self.assertEqual(self.said(self.client("speak")), "spoken")
        self.assertEqual(self.order("accept"), "accepted")
        self.assertEqual(self.order("read"), "read 1")


if __name__ == "__main__":
    unittest.main()
