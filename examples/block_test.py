#!/usr/bin/env python3
"""block_test.py TARGET INITIATOR ANYVERBS: the block service: data, sessions that end in the middle, devices that go, ends that are killed."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

COMMAND, INITIATOR, TARGET = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
ENVIRONMENT = dict(os.environ, ANYVERBS_NODE=f"block-{os.getpid()}", ANYVERBS_IDLE_S="30", ANYVERBS_DEVICES="roce0,roce1")
SESSIONS = int(os.environ.get("BLOCK_SESSIONS", "20"))
LOST = "Transport endpoint is not connected"


def command(*words):
    return subprocess.run([COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def address(device):
    """As long as a node is up."""
    found, = [d for d in json.loads(command("status", "--json"))["devices"] if d["name"] == device]
    return found["ports"][0]["gids"][1]["gid"].removeprefix("::ffff:")


class Block(unittest.TestCase):
    def setUp(self):
        self.ends = []
        self.target = self.begin(TARGET, "mib=4")
        self.queues()  # it listens

    def tearDown(self):
        for end in self.ends:
            if end.returncode is None:
                end.kill()
                end.communicate()

    def begin(self, program, *parameters):
        self.ends.append(subprocess.Popen([program, *parameters], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True, env=ENVIRONMENT))
        return self.ends[-1]

    def load(self, lines, *parameters):
        initiator = self.begin(INITIATOR, *parameters)
        initiator.stdin.write(lines)
        initiator.stdin.flush()
        return initiator

    def said(self, end):
        """What an end that has no more to do says, and that no sanitizer has found a thing."""
        _, text = end.communicate()
        return text, end.returncode

    def queues(self):
        self.target.stdin.write("target\n")
        self.target.stdin.flush()
        return [int(number) for number in re.findall(r"\d+", self.target.stdout.readline())]

    def wait_queues(self, want):
        while self.queues()[0] != want:
            time.sleep(0.01)

    def end_target(self, said=r"(target: .*\n)*"):
        self.wait_queues(0)
        text, status = self.said(self.target)
        self.assertRegex(text, "^" + said + "$")
        self.assertEqual(status, 0)

    def test_what_is_written_is_read(self):
        for depth, length, rounds in ((16, 65536, 100), (3, 512, 100), (128, 8192, 3), (1, 5120, 100)):
            load = self.load(f"initiator {rounds}\n", f"depth={depth}", f"length={length}")
            self.assertEqual(self.said(load), (f"initiator: {rounds} rounds\n", 0))
        self.assertEqual(self.queues()[1], (16 + 3 + 1) * 201 + 128 * 7)
        self.end_target(r"")

    def test_sessions_that_end_in_the_middle(self):
        load = self.load("initiator 3\n" * SESSIONS, "depth=32", "length=4096", "hasty=1")
        self.assertEqual(self.said(load), ("initiator: 3 rounds\n" * SESSIONS, 0))
        self.end_target()

    def test_refused(self):
        for line, parameters, why in (("1", ["depth=128", "length=65536"], "No space left on device"), ("1", ["port=7176"], LOST),
                                      ("x", [], "Invalid argument"), ("0", [], "Invalid argument")):
            self.assertIn(f"initiator: {why}\n", self.said(self.load(f"initiator {line}\n", *parameters))[0])
        self.assertEqual(self.said(self.begin(INITIATOR, "depth=129")), ("module_init: Invalid argument\n", 1))
        self.end_target(r"")

    def test_devices_go_and_come(self):
        load = self.load("initiator 2000\n", "depth=8", "length=4096", f"addr={address('roce1')}", "timeout=2", "retry=60")
        for _ in range(3):
            self.wait_queues(1)
            commands = self.queues()[1]
            while self.queues()[1] < commands + 50:
                time.sleep(0.001)
            command("device", "remove", "roce1")
            self.wait_queues(0)
            command("device", "add", "roce1")
        self.assertIn("initiator: 2000 rounds\n", self.said(load)[0])
        self.end_target()

    def test_killed(self):
        for _ in range(3):
            load = self.load("initiator 100000\n", "depth=16")
            self.wait_queues(1)
            load.kill()
            load.communicate()
            self.wait_queues(0)
        load = self.load("initiator 100000\n", "depth=16", "timeout=5")
        self.wait_queues(1)
        self.target.kill()
        self.assertIn(f"initiator: {LOST}\n", self.said(load)[0])

    def test_interrupted(self):
        load = self.load("initiator 100000\n")
        self.wait_queues(1)
        load.send_signal(signal.SIGINT)
        self.assertIn("initiator: Interrupted system call\n", self.said(load)[0])
        self.wait_queues(0)
        load = self.load("initiator 100000\n")
        self.wait_queues(1)
        self.target.send_signal(signal.SIGINT)  # ends queues in use
        self.assertEqual(self.said(self.target)[1], 0)
        self.assertIn(f"initiator: {LOST}\n", self.said(load)[0])


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        subprocess.run([COMMAND, "stop", "--force"], env=ENVIRONMENT, capture_output=True, timeout=60)
