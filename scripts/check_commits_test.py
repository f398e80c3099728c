#!/usr/bin/env python3
"""check_commits_test: scripts/check_commits takes the commits that keep to the rules, names the others, and copes with any checkout."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BODY = "\n\nThe cause, the change, and what shows it.\n"
GOOD = (
    "node: wait for a daemon that was started" + BODY,
    "path/udp, test/fuzz: address the peer" + BODY,
    "check: seed, and pass the seed on" + BODY,
    "run: need less\n\n    " + "x" * 90 + "\n",
)
BAD = (
    ("node: wait", "it has no body"),
    ("node: waits for a daemon" + BODY, "no imperative"),
    ("node: waiting for a daemon" + BODY, "no imperative"),
    ("node: waited for a daemon" + BODY, "no imperative"),
    ("node: the daemon waits" + BODY, "no imperative"),
    ("node: Wait for a daemon" + BODY, "no imperative"),
    ("Wait for a daemon" + BODY, "is not `room: imperative`"),
    ("node: wait " + "x" * 70 + BODY, "columns, at most 72"),
    ("node: wait\n\n" + "x" * 76 + "\n", "columns, at most 75"),
)


def git(root, *words):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, "-C", root, *words], capture_output=True, text=True, check=True).stdout.strip()


def commit(root, message):
    git(root, "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", message)
    return git(root, "rev-parse", "HEAD")


def run(root, *arguments):
    return subprocess.run([sys.executable, os.path.join(HERE, "check_commits"), "--root", root, *arguments], capture_output=True,
                          text=True, check=False)


class Commits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "tree")
        os.mkdir(self.root)
        git(self.root, "init", "-q")
        commit(self.root, "An old one")
        self.after = commit(self.root, "The last of the old ones")

    def test_good_ones(self):
        for message in GOOD:
            commit(self.root, message)
        done = run(self.root, "--after", self.after)
        self.assertEqual((done.returncode, done.stdout), (0, f"{len(GOOD)} commits, 0 breaches\n"))

    def test_bad_ones(self):
        for message, why in BAD:
            name = commit(self.root, message)
            done = run(self.root, "--after", self.after)
            self.assertEqual(done.returncode, 1)
            said = done.stdout.splitlines()
            self.assertEqual(len(said), 2, done.stdout)
            self.assertTrue(said[0].startswith(name[:12]) and why in said[0], done.stdout)
            git(self.root, "reset", "-q", "--hard", "HEAD~")

    def test_merges_and_a_detached_head(self):
        commit(self.root, GOOD[0])
        git(self.root, "checkout", "-q", "-b", "side", self.after)
        commit(self.root, GOOD[1])
        git(self.root, "merge", "-q", "--no-ff", "-m", "Merge of a pull request", "@{-1}")
        git(self.root, "checkout", "-q", "--detach")
        done = run(self.root, "--after", self.after)
        self.assertEqual((done.returncode, done.stdout), (0, "2 commits, 0 breaches\n"))

    def test_shallow_checkout(self):
        commit(self.root, BAD[0][0])
        shallow = self.root + "-shallow"
        subprocess.run(["git", "clone", "-q", "--depth=1", "file://" + self.root, shallow], check=True)
        done = run(shallow, "--after", self.after)
        self.assertEqual(done.returncode, 0)
        self.assertIn("no commit judged", done.stdout)

    def test_no_repository(self):
        done = run("/", "--after", self.after)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
