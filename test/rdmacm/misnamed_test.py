#!/usr/bin/env python3
"""misnamed_test.py: requests of another host whose header says that they come from 127.0.0.1, or go there, reach no listener.

usage: misnamed_test.py BUILD_DIR
"""
import json
import subprocess
import time
import unittest

from nodes import COMMAND, HOSTS, NodesTest

REQUESTS = 8
LIMIT_S = 100


class MisnamedTest(NodesTest):
    def setUp(self):
        super().setUp()
        self.listener = self.start("a", "rdmacm_peer", "listen", "127.0.0.1", "64", "TCP", "1")
        self.port = self.listener.stdout.readline().strip()
        self.assertRegex(self.port, r"^\d+$", "the listener does not listen")

    def refused(self):
        """By all processes of host a."""
        said = subprocess.run([COMMAND, "status", "--json"], env=self.env["a"], capture_output=True, text=True, check=True)
        return sum(process["counters"].get("cm_wrong_source", 0) for process in json.loads(said.stdout)["processes"])

    def order(self, line):
        self.listener.stdin.write(line + "\n")
        self.listener.stdin.flush()

    def check_refused(self, source, destination):
        before, end = self.refused(), time.monotonic() + LIMIT_S
        while self.refused() < before + REQUESTS:  # a MAD may be lost: they are sent until so many are counted
            sender = self.start("b", "rdmacm_flood", str(REQUESTS), HOSTS["a"], self.port, source, destination)
            self.assertEqual(sender.wait(LIMIT_S), 0)
            self.order("drain")
            self.assertEqual(self.listener.stdout.readline(), "drained 0 requests\n")
            self.assertLess(time.monotonic(), end)

    def test_to_the_listener_of_loopback(self):
        self.check_refused(HOSTS["b"], "127.0.0.1")

    def test_from_and_to_loopback(self):
        self.check_refused("127.0.0.1", "127.0.0.1")
        self.order("accept")
        client = self.start("a", "rdmacm_peer", "connect", "127.0.0.1", self.port)
        self.assertEqual(client.communicate(timeout=LIMIT_S)[0], "established\n")
        self.assertEqual(self.listener.stdout.readline(), "accepted\n")


if __name__ == "__main__":
    unittest.main()
