#!/usr/bin/env python3
"""space_test: one-sided copies reach the program that they were meant for, and nobody who comes after it.

usage: space_test.py [unittest's arguments]
"""
import errno
import os
import random
import signal
import statistics
import unittest

import fault

PLACE = 0x200000000000  # where the target's registered memory lies, and the heir's
BYTES = 4 << 20         # END_MEMORY
WATCH_MS = 150
ROUNDS = 5


class Case(unittest.TestCase):
    TWICE = None
    ADOPT = "0"  # copies by the kernel: what is mapped is the file, whoever has the address by now

    def setUp(self):
        self.world = fault.World(ANYVERBS_ADOPT=self.ADOPT)
        self.addCleanup(self.world.close)

    def pair(self, kind="write", more=20, **env):
        sender, receiver = self.world.end(**env), self.world.end(END_AT=hex(PLACE), END_TWICE=self.TWICE)
        for end in (sender, receiver):
            self.assertEqual(end.line(), "open")
        sender.expect("fill 165", "filled")
        fault.connect(sender, receiver, kind)
        receiver.expect("go", "going")
        sender.tell("go")
        if more:  # else it stops by itself, perhaps before it can answer
            self.assertEqual(sender.line(), "going")
            self.assertTrue(fault.wait_progress(sender, more))
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


class Registration(Case):
    """A peer is stopped in the middle of a stream, and its target deregisters the memory."""
    ROUNDS = int(os.environ.get("SPACE_ROUNDS", "8"))

    def go_on(self, sender, late):
        os.kill(sender.pid, signal.SIGCONT)
        if late:
            self.assertEqual(sender.line(), "going")

    def check_ended(self, sender, receiver, late):
        """It answered 0: from here on the memory is its owner's alone."""
        receiver.expect("fill 0", "filled")
        self.go_on(sender, late)
        self.assertIn(sender.wait_error(), (f"ended {fault.REMOTE_ACCESS}", f"ended {fault.FLUSHED}"))
        self.assertEqual(receiver.ask("other 0"), "other 0")

    def check_stays(self, sender, receiver, late, error):
        """It answered EBUSY: the memory is registered, and traffic goes on; in the end it can be deregistered."""
        self.assertEqual(error, errno.EBUSY)
        self.go_on(sender, late)
        self.assertTrue(fault.wait_progress(sender, 20))
        for end in (sender, receiver):
            self.assertEqual(end.expect("stop", "stopped"), ["0"])
        self.assertEqual(receiver.expect("dereg", "dereg")[0], "0")

    def one_round(self, kind, delay, **env):
        sender, receiver = self.pair(kind, 0 if env else 20, **env)
        if env:
            self.wait_state(sender.pid, "T")
        else:
            fault.time.sleep(delay)
            self.signal(sender.pid, signal.SIGSTOP)
        error, took_us = map(int, receiver.expect("dereg", "dereg"))
        if error == 0:
            self.check_ended(sender, receiver, bool(env))
        else:
            self.check_stays(sender, receiver, bool(env), error)
        for end in (sender, receiver):
            end.kill()
        return error, took_us

    def check(self, kind):
        rounds = [self.one_round(kind, random.uniform(0, 0.005)) for _ in range(self.ROUNDS)]
        took = sorted(us for _, us in rounds)
        print(f"{self.id()}: {sum(error != 0 for error, _ in rounds)} of {len(rounds)} EBUSY, median "
              f"{statistics.median(took):.0f} us, longest {took[-1]} us")
        return rounds

    def test_peer_stopped_in_a_stream_of_writes(self):
        self.check("write")

    def test_peer_stopped_in_a_stream_of_reads(self):
        """What it still reads harms nobody."""
        self.assertEqual({error for error, _ in self.check("read")}, {0})

    def test_peer_stopped_before_its_copy(self):
        """Between its hazard and its system call: nothing can revoke that call."""
        for call in (1, 7):
            error, _ = self.one_round("write", 0, PAUSE_BEFORE=str(call), LD_PRELOAD=fault.program("pause.so"))
            self.assertEqual(error, errno.EBUSY)


class Adopted(Registration):
    ADOPT = "1"

    def pair(self, kind="write", more=20, **env):
        """Until the sender has mapped the receiver's memory file, the kernel copies."""
        sender, receiver = super().pair(kind, more, **env)
        deadline = fault.time.monotonic() + fault.PATIENCE_S
        while fault.memory_files(sender) < 2:
            self.assertLess(fault.time.monotonic(), deadline)
            fault.time.sleep(0.001)
        self.assertTrue(fault.wait_progress(sender, 8))
        return sender, receiver

    def check(self, kind):
        rounds = super().check(kind)
        self.assertEqual({error for error, _ in rounds}, {0})
        return rounds

    def test_peer_stopped_before_its_copy(self):
        self.skipTest("copies nothing by the kernel")


class AdoptedTwice(Adopted):
    """The memory stays in the file for the other registration: a late store would be seen."""
    TWICE = "1"

    def check(self, kind):
        return Registration.check(self, kind)


if __name__ == "__main__":
    unittest.main()
