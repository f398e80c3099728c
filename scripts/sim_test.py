#!/usr/bin/env python3
"""sim_test: what scripts/sim makes of a program that passes, fails, is slow, or hangs. Time is the test's: HANG_SECONDS is one look at the clock."""
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
LOADER = importlib.machinery.SourceFileLoader("sim", os.path.join(HERE, "sim"))

PASSES = "echo passed, 7 events"
# Seed 3 fails.
FAILS = "[ $1 -gt 3 ] || { echo FAILED seed 3, for a reason; exit 1; }; echo passed, 7 events"
# Ends when the test opens the other end.
WAITS = "cat fifo; echo passed, 7 events"


class Batch(unittest.TestCase):
    def setUp(self):
        self.sim = importlib.util.module_from_spec(importlib.util.spec_from_loader("sim", LOADER))
        LOADER.exec_module(self.sim)
        self.folder = tempfile.TemporaryDirectory(prefix="sim-test-")
        self.addCleanup(self.folder.cleanup)
        self.fifo = os.path.join(self.folder.name, "fifo")
        os.mkfifo(self.fifo)

    def run_batch(self, script):
        program = os.path.join(self.folder.name, "simulate")
        with open(program, "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\ncd {self.folder.name}\n{script}\n")
        os.chmod(program, 0o755)
        return self.sim.run_batch(program, 1, 5)

    def test_passes(self):
        self.assertEqual(self.run_batch(PASSES), (5, [], 7))

    def test_goes_on_behind_a_seed_that_fails(self):
        self.assertEqual(self.run_batch(FAILS), (4, ["FAILED seed 3, for a reason"], 7))

    def test_a_slow_run_is_no_failure(self):
        looks = []

        def processor_time(pid):
            looks.append(pid)
            if len(looks) == 5:
                os.close(os.open(self.fifo, os.O_WRONLY))
            return len(looks)

        self.sim.HANG_SECONDS = 0.05
        self.sim.processor_time = processor_time
        self.assertEqual(self.run_batch(WAITS), (5, [], 7))
        self.assertGreaterEqual(len(looks), 5)

    def test_a_hang_is_one(self):
        self.sim.HANG_SECONDS = 0.05
        self.sim.processor_time = lambda pid: 1
        passed, failures, _ = self.run_batch("exec " + WAITS)
        self.assertEqual(passed, 0)
        self.assertRegex(failures[0], r"^FAILED seeds 1 .. 5: a hang")

    def test_processor_time_grows_with_work(self):
        begin = self.sim.processor_time(os.getpid())
        while self.sim.processor_time(os.getpid()) == begin:
            pass


if __name__ == "__main__":
    unittest.main()
