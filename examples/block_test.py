#!/usr/bin/env python3
"""block_test.py TARGET INITIATOR ANYVERBS [ib]: the block service: data, sessions that end in the middle, devices that go, ends that are killed.
ib: between two hosts of a fabric, else between processes of one host."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

IB = sys.argv[-1] == "ib" and sys.argv.pop() == "ib"
COMMAND, INITIATOR, TARGET = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
ENVIRONMENT = dict(os.environ, ANYVERBS_NODE=f"block-{os.getpid()}", ANYVERBS_IDLE_S="30", ANYVERBS_DEVICES="roce0,roce1")
HOSTS = {TARGET: {"ANYVERBS_HOST": "h1"}, INITIATOR: {"ANYVERBS_HOST": "h2"}} if IB else {TARGET: {}, INITIATOR: {}}
PLACE = "127.64.0.1" if IB else "127.0.0.1"  # the target's
SESSIONS = int(os.environ.get("BLOCK_SESSIONS", "20"))
LOST = "Transport endpoint is not connected"


def command(*words):
    return subprocess.run([COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def address(device):
    """As long as a node is up."""
    found, = [d for d in json.loads(command("status", "--json"))["devices"] if d["name"] == device]
    return found["ports"][0]["gids"][1]["gid"].removeprefix("::ffff:")


class Block(unittest.TestCase):
    """What holds on every way."""

    def setUp(self):
        self.ends = []
        self.begin_target()

    def tearDown(self):
        for end in self.ends:
            if end.returncode is None:
                end.kill()
                end.communicate()

    def begin(self, program, *parameters):
        self.ends.append(subprocess.Popen([program, *parameters], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True, env={**ENVIRONMENT, **HOSTS[program]}))
        return self.ends[-1]

    def begin_target(self):
        self.target = self.begin(TARGET, "mib=4")
        self.queues()  # it listens

    def load(self, lines, *parameters):
        initiator = self.begin(INITIATOR, f"addr={PLACE}", *parameters)
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

    def wait_queues(self, want, load=None):
        while self.queues()[0] != want:
            self.runs(load)
            time.sleep(0.01)

    def wait_commands(self, count, load=None):
        """Until there are so many more."""
        before = self.queues()[1]
        while self.queues()[1] < before + count:
            self.runs(load)
            time.sleep(0.001)

    def runs(self, load):
        """Else what it would do is waited for in vain."""
        if load is not None and load.poll() is not None:
            self.fail(f"the initiator has ended: {self.said(load)}")

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


class OneHost(Block):
    def test_devices_go_and_come(self):
        load = self.load("initiator 2000\n", "depth=8", "length=4096", f"addr={address('roce1')}", "timeout=2", "retry=60")
        for _ in range(3):
            self.wait_queues(1)
            self.wait_commands(50)
            command("device", "remove", "roce1")
            self.wait_queues(0)
            command("device", "add", "roce1")
        self.assertIn("initiator: 2000 rounds\n", self.said(load)[0])
        self.end_target()


class Fabric(Block):
    def setUp(self):
        command("fabric", "up", "--topology", "star:2")
        self.addCleanup(subprocess.run, [COMMAND, "fabric", "down", "--force"], env=ENVIRONMENT, capture_output=True)
        super().setUp()

    def test_a_link_goes_and_comes(self):
        """The target hears of the end of its queue when the link is there again."""
        load = self.load("initiator 100000\n", "depth=8", "length=4096", "timeout=5")
        self.wait_queues(1, load)
        self.wait_commands(50, load)
        command("fabric", "link", "h2:1", "down")
        self.assertIn(f"initiator: {LOST}\n", self.said(load)[0])
        command("fabric", "link", "h2:1", "up")
        self.wait_queues(0)
        self.assertIn("initiator: 10 rounds\n", self.said(self.load("initiator 10\n", "retry=60"))[0])
        self.end_target()

    def test_a_fabric_goes(self):
        """A fabric that ends takes the devices of both ends along, for good."""
        for _ in range(3):
            load = self.load("initiator 100000\n", "depth=8", "length=4096")
            self.wait_queues(1, load)
            self.wait_commands(50, load)
            command("fabric", "down", "--force")
            self.assertIn(f"initiator: {LOST}\n", self.said(load)[0])
            self.end_target()
            command("fabric", "up", "--topology", "star:2")
            self.begin_target()
        self.assertEqual(self.said(self.load("initiator 10\n")), ("initiator: 10 rounds\n", 0))
        self.end_target(r"")


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(Fabric if IB else OneHost)


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        subprocess.run([COMMAND, "stop", "--force"], env=ENVIRONMENT, capture_output=True, timeout=60)
