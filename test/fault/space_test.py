#!/usr/bin/env python3
"""space_test: one-sided copies reach the program that they were meant for, and nobody who comes after it.

usage: space_test.py [unittest's arguments]
"""
import os
import signal
import unittest

import fault

PLACE = 0x200000000000  # where the target's registered memory lies, and the heir's
BYTES = 4 << 20         # END_MEMORY
WATCH_MS = 150
ROUNDS = 5


class Case(unittest.TestCase):
    def setUp(self):
        # copies by the kernel: what is mapped is the file, whoever has the address by now
        self.world = fault.World(ANYVERBS_ADOPT="0")
        self.addCleanup(self.world.close)

    def pair(self, kind="write"):
        sender, receiver = self.world.end(), self.world.end(END_AT=hex(PLACE))
        for end in (sender, receiver):
            self.assertEqual(end.line(), "open")
        sender.expect("fill 165", "filled")
        fault.connect(sender, receiver, kind)
        fault.go(sender, receiver)
        self.assertTrue(fault.wait_progress(sender, 20))
        return sender, receiver

    def words(self):
        return " ".join((fault.program("heir"), hex(PLACE), str(BYTES), str(WATCH_MS)))

    def signal(self, pid, number):
        os.kill(pid, number)
        if number == signal.SIGSTOP:  # seen by who waits for it only: it is no child of ours
            with self.subTest():
                self.wait_state(pid, "T")

    def wait_state(self, pid, state):
        deadline = fault.time.monotonic() + fault.PATIENCE_S
        while fault.time.monotonic() < deadline:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == state:
                    return
            fault.time.sleep(0.001)
        self.fail(f"{pid} does not reach state {state}")

    def check_direct(self, sender):
        """Copies went past the target's engine, so that the test is about them."""
        for p in self.world.status()["processes"]:
            if p["pid"] == sender.pid:
                self.assertGreater(p["counters"]["direct_operations"], 0)


class Target(Case):
    def check_exec(self, node_is_stopped):
        for _ in range(ROUNDS):
            sender, receiver = self.pair()
            self.check_direct(sender)
            node = self.world.node_pid()
            if node_is_stopped:
                self.signal(node, signal.SIGSTOP)
            try:
                self.assertEqual(receiver.ask("exec " + self.words()), f"heir {receiver.pid}")
                self.assertEqual(receiver.line(), "foreign 0")
            finally:
                os.kill(node, signal.SIGCONT)
            self.assertIn(sender.wait_error(), (f"ended {fault.RETRY_EXCEEDED}", f"ended {fault.FLUSHED}"))
            for end in (sender, receiver):
                end.kill()

    def test_calls_exec(self):
        self.check_exec(False)

    def test_calls_exec_while_the_node_is_stopped(self):
        """Nobody tells the initiator, and the target's pidfd is silent: it is the same process."""
        self.check_exec(True)

    def test_starts_a_program_by_vfork(self):
        """The child gets nothing, and the target gets all."""
        sender, receiver = self.pair()
        for _ in range(ROUNDS):
            receiver.expect("fill 0", "filled")
            heir = receiver.ask("vfork " + self.words())
            self.assertNotIn(heir, ("heir", f"heir {receiver.pid}"))
            self.assertTrue(fault.wait_progress(sender, 20))
            self.assertEqual(receiver.line(), "foreign 0")
            self.assertGreater(int(receiver.expect("other 0", "other")[0]), 0)
        for end in (sender, receiver):
            self.assertEqual(end.expect("stop", "stopped"), ["0"])
        for end in (sender, receiver):
            self.assertEqual(end.quit(), (0, ""))

    def test_number_is_used_again(self):
        """The initiator is stopped, anywhere in its stream, while the target dies and its number gets another owner."""
        for _ in range(2 * ROUNDS):
            sender, receiver = self.pair()
            self.signal(sender.pid, signal.SIGSTOP)
            receiver.kill()
            heir = self.world.start(fault.program("heir"), "--number", str(receiver.pid), *self.words().split()[1:])
            said = heir.line()
            if said == "error clone3: Operation not permitted":
                self.skipTest("needs root, to choose a process number")
            self.assertEqual(said, f"heir {receiver.pid}")
            os.kill(sender.pid, signal.SIGCONT)
            self.assertEqual(heir.line(), "foreign 0")
            self.assertIn(sender.wait_error(), (f"ended {fault.RETRY_EXCEEDED}", f"ended {fault.FLUSHED}"))
            for end in (sender, heir):
                end.kill()


if __name__ == "__main__":
    unittest.main()
