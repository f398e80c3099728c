#!/usr/bin/env python3
"""check_test: scripts/check finds exactly the breaches that each sample's `expected` lists, and nothing else."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = os.path.join(HERE, "check_samples")


def run(*arguments):
    return subprocess.run([sys.executable, os.path.join(HERE, "check"), *arguments], capture_output=True, text=True,
                          check=False)


class Check(unittest.TestCase):
    def test_samples(self):
        for sample in sorted(os.listdir(SAMPLES)):
            with self.subTest(sample=sample):
                root = os.path.join(SAMPLES, sample)
                with open(os.path.join(root, "expected"), encoding="utf-8") as f:
                    expected = sorted(f.read().split("\n"))[1:]
                done = run("--quiet", "--root", root)
                found = sorted({":".join(line.split(":")[:3]) for line in done.stdout.splitlines()})
                self.assertEqual(found, expected, done.stdout + done.stderr)
                self.assertEqual(done.returncode, 1)

    def test_clean_tree_passes(self):
        done = run("--root", os.path.join(SAMPLES, "words", "src"))
        self.assertIn("breaches", done.stdout)

    def test_rooms_of_the_table_exist(self):
        loader = importlib.machinery.SourceFileLoader("check", os.path.join(HERE, "check"))
        check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
        loader.exec_module(check)
        for room in check.ALLOWED:
            folder = room.removesuffix("/*")
            self.assertTrue(any(os.path.isdir(os.path.join(HERE, "..", top, folder)) for top in ("src", "")), room)

    def test_every_rule_has_a_sample(self):
        rules = set()
        for sample in os.listdir(SAMPLES):
            with open(os.path.join(SAMPLES, sample, "expected"), encoding="utf-8") as f:
                rules |= {line.split(": ")[1].strip() for line in f}
        self.assertEqual(rules - {"owners"}, {"layers", "sockets", "threads", "clock", "calls", "size", "dead", "locks", "forks", "fields", "variables", "circles", "contracts",
                                 "words"})
        self.assertIn("owners", rules)


if __name__ == "__main__":
    unittest.main()
