#!/usr/bin/env python3
"""man_test.py: the manual pages: groff finds no fault, and they name each command, each setting and each other.

usage: man_test.py ANYVERBS       the built command
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ANYVERBS = os.path.abspath(sys.argv.pop(1))
REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAN = os.path.join(REPO, "man")


def page(name):
    with open(os.path.join(MAN, name), encoding="utf-8") as f:
        return f.read()


def helped(*words):
    return subprocess.run([ANYVERBS, "help", *words], capture_output=True, text=True, check=True).stdout


class Pages(unittest.TestCase):
    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_finds_no_fault(self):
        """In the tree that `man` has them in, since pages of two names begin with .so."""
        with tempfile.TemporaryDirectory(prefix="anyverbs-man-") as tree:
            names = sorted(os.listdir(MAN))
            for name in names:
                folder = os.path.join(tree, "man" + name.rsplit(".", 1)[1])
                os.makedirs(folder, exist_ok=True)
                shutil.copy(os.path.join(MAN, name), folder)
            for name in names:
                done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", "-k", os.path.join("man" + name.rsplit(".", 1)[1], name)],
                                      cwd=tree, capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), name)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_finds_no_error(self):
        for name in sorted(os.listdir(MAN)):
            if not page(name).startswith(".so "):
                done = subprocess.run(["mandoc", "-T", "lint", "-W", "error", os.path.join(MAN, name)], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (0, ""), name)

    def test_each_command_has_its_words(self):
        commands = re.findall(r"(?m)^  (\w+)  +\S", helped())
        self.assertGreater(len(commands), 10)
        for name in commands:
            self.assertRegex(page("anyverbs.1"), rf"(?m)^\.(B|BI|BR|RB)\b.*\b{name}\b", name)

    def test_synopsis_has_each_command_and_option(self):
        synopsis = page("anyverbs.1").split(".SH SYNOPSIS")[1].split(".SH DESCRIPTION")[0].replace("\\-", "-")
        commands = re.findall(r"(?m)^  (\w+)  +\S", helped())
        self.assertEqual(sorted(re.findall(r"(?m)^\.B anyverbs (\w+)$", synopsis)), sorted(commands))
        for name in commands:
            part = synopsis.split(f".B anyverbs {name}\n")[1].split(".br")[0]
            usage = helped(name).split("\n\n")[0]
            self.assertEqual(sorted(re.findall(r"--[a-z]+", part)), sorted(re.findall(r"--[a-z]+", usage)), name)

    def test_each_setting_has_its_words(self):
        settings = set(re.findall(r"\bANYVERBS_[A-Z_]+", helped("settings")))
        self.assertGreater(len(settings), 10)
        for name in settings:
            self.assertIn(name, page("anyverbs.1") + page("anyverbsd.8"))
        with open(os.path.join(REPO, "README.md"), encoding="utf-8") as f:
            self.assertLessEqual(set(re.findall(r"(?m)^\| `(ANYVERBS_[A-Z_]+)=", f.read())), settings)

    def test_pages_refer_to_pages(self):
        ours = set(os.listdir(MAN))
        for name in ours:
            for other in re.findall(r"(?m)^\.so man\d/(\S+)$", page(name)) + [f"{n}.{s}" for n, s in
                                                                          re.findall(r"(?m)^\.BR (ib_\w+|anyverbs\w*) \((\d)\)", page(name))]:
                self.assertIn(other, ours, name)


if __name__ == "__main__":
    unittest.main()
