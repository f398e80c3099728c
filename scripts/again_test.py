#!/usr/bin/env python3
"""again_test CAGE: what becomes of a test that fails in each of the ways that scripts/again tells apart, by ctest and by the client tables."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CAGE = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))

# Each test is a shell script. The first run of those in ONCE fails as here; `then` is what they do from the second run on.
FIRST = {
    "limit": "sleep 60",                                             # the cage's
    "event": "echo 'LATE: no completion within 5000 ms'; exit 1",
    "cmocka": "printf '[ RUN      ] a\\n[       OK ] a\\n[ RUN      ] b\\nLATE: no event within 5000 ms\\n[  FAILED  ] b\\n'; exit 1",
    "source": "printf '[ RUN      ] a\\n[  ERROR   ] --- 0 != 1\\ntest/waits_test.c:3: error: Failure!\\n[  FAILED  ] a\\n'; exit 1",
    "python": "printf 'FAIL: test_damaged (x.A)\\n{\\047corrupt\\047: 23}\\n  self.assertLess(time.monotonic(), end)\\nAssertionError: 2.1 not less than 2.0\\n' >&2; exit 1",
    "left": "printf '[ RUN      ] b\\nLATE: no event within 5000 ms\\n[  FAILED  ] b\\n==7==ERROR: LeakSanitizer: detected memory leaks\\n"
            "SUMMARY: AddressSanitizer: 432 byte(s) leaked in 1 allocation(s).\\n'; exit 1",
    "leak": "printf 'LATE: no event within 5000 ms\\n==7==ERROR: LeakSanitizer: detected memory leaks\\n'; exit 1",
    "signal": "echo 'LATE: no event within 5000 ms'; kill -SEGV $$",
    "child": "echo 'LATE: no event within 5000 ms'; echo 'server ended with status -11 (signal 11)'; exit 1",
    "report": "echo 'LATE: no event within 5000 ms'; echo 'WARNING: ThreadSanitizer: data race'; exit 1",
    "bytes": "echo 'LATE: no event within 5000 ms'; echo 'difference at offset 3 0x01 0x02'; exit 1",
    "seed": "echo 'LATE: no event within 5000 ms'; echo 'FAILED seed 12'; exit 1",
    "model": "echo 'LATE: no event within 5000 ms'; echo 'pan:1: assertion violated'; exit 1",
    "status": "echo 'expected 1, got 2'; exit 1",
    "half": "printf '[ RUN      ] a\\nLATE: no event within 5000 ms\\n[  FAILED  ] a\\n[ RUN      ] b\\n3 != 4\\n[  FAILED  ] b\\n'; exit 1",
}
FLAKY = ("limit", "event", "cmocka", "source", "python", "left")
LIMIT_S = (15, 2)  # of processor time, of a test and of the one that passes it; by the clock it is four times that
SOURCE = "{\n\n\tassert_int_equal(poll(&p, 1, EVENT_MS), 1);\n}\n"


class Tree:
    """A repository with scripts/again and tests; a test's runs are counted in a file of its own."""

    def __init__(self, tests):
        self.root = tempfile.mkdtemp(prefix="again-")
        self.environment = {**os.environ, "AV_AGAIN_ROOT": self.root, "XDG_STATE_HOME": os.path.join(self.root, "state")}
        self.environment.pop("AV_CHECK_BASE", None)
        self.git("init", "-q")
        self.write(".gitignore", "build/\nstate/\nruns/\n")
        self.write("test/waits_test.c", SOURCE)
        lines = ["cmake_minimum_required(VERSION 3.22)", "project(again NONE)", "enable_testing()"]
        for name, script in tests.items():
            self.write(f"test/{name}.sh", script)
            lines += [f"add_test(NAME t/{name} COMMAND {CAGE} sh ${{CMAKE_SOURCE_DIR}}/test/{name}.sh {self.root}/runs/{name})",
                      f"set_tests_properties(t/{name} PROPERTIES ENVIRONMENT_MODIFICATION AV_CAGE_SECONDS=set:{LIMIT_S[name == 'limit']} ENVIRONMENT WORD=set)"]
        self.write("CMakeLists.txt", "\n".join(lines) + "\n")
        os.mkdir(f"{self.root}/runs")
        self.commit("base")
        self.base = self.git("rev-parse", "HEAD")
        self.run("cmake", "-B", "build", ".")

    def close(self):
        shutil.rmtree(self.root)

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def run(self, *words):
        return subprocess.run(words, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)

    def git(self, *words):
        return self.run("git", "-c", "user.name=a", "-c", "user.email=a@b", *words).stdout.strip()

    def commit(self, subject):
        self.git("add", "-A")
        self.git("commit", "-qm", subject)

    def runs(self, name):
        with open(f"{self.root}/runs/{name}", encoding="utf-8") as f:
            return len(f.read().split())

    def check(self, *more):
        """As `./check` does: the step, then again. What again said of each test, and how many are flaky."""
        log = os.path.join(self.root, "build", "step.log")
        said = self.run("ctest", "--test-dir", "build", "--output-on-failure", "-j", "4").stdout
        with open(log, "w", encoding="utf-8") as f:
            f.write("again: ctest build\n" + said)
        done = self.run(sys.executable, os.path.join(HERE, "again"), "--log", log, "--step", "unit", *(more or ("--base", self.base)))
        assert done.returncode == 0, done.stdout + done.stderr
        verdicts = dict(re.findall(r"^(?:FLAKY )?t/(\w+): (.*)$", done.stdout, re.M))
        flaky = re.findall(r"^FLAKY t/(\w+): ", done.stdout, re.M)
        assert not verdicts or done.stdout.splitlines()[-1] == f"{len(flaky)} flaky", done.stdout
        return verdicts, flaky

    def owed(self):
        done = self.run(sys.executable, os.path.join(HERE, "again"), "--owed")
        return done.returncode, done.stdout

    def rows(self):
        with open(os.path.join(self.root, "test", "flaky.tsv"), encoding="utf-8") as f:
            return [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]


def once(first, then="exit 0"):
    """A script that does `first` in its first run, and `then` in every other."""
    return f'echo run >>"$1"\n[ "$WORD" = set ] || exit 1\nif [ $(wc -l <"$1") = 1 ]; then\n{first}\nelse\n{then}\nfi\n'


class Again(unittest.TestCase):
    def tree(self, tests):
        tree = Tree(tests)
        self.addCleanup(tree.close)
        return tree

    def test_each_way_to_fail(self):
        tree = self.tree({name: once(first) for name, first in FIRST.items()})
        verdicts, flaky = tree.check("--base", tree.base, "--left", "9")
        self.assertEqual(sorted(flaky), sorted(FLAKY), verdicts)
        self.assertEqual(set(verdicts), set(FIRST))
        for name in FIRST:
            self.assertEqual(tree.runs(name), 12 if name in FLAKY else 1, (name, verdicts[name]))
        for name, reason in {"signal": "a signal", "child": "a signal", "report": "a sanitizer's report", "leak": "a sanitizer's report", "bytes": "wrong bytes",
                             "seed": "a seed", "model": "a model's report", "status": "something else", "half": "something else"}.items():
            self.assertIn(f"not run again: {reason}", verdicts[name])

    def test_fails_again(self):
        late = FIRST["event"]
        tree = self.tree({"alone": once(late, late), "copies": once(late, '[ $(wc -l <"$1") -le 4 ] || [ $(wc -l <"$1") -gt 8 ] || exit 1')})
        verdicts, flaky = tree.check()
        self.assertEqual(flaky, [])
        self.assertRegex(verdicts["alone"], r"fails again, alone \(status 1\)")
        self.assertRegex(verdicts["copies"], r"fails again, \d of 8 copies at once")

    def test_two_at_most(self):
        tree = self.tree({name: once(FIRST["event"]) for name in ("a", "b", "c")})
        verdicts, flaky = tree.check()
        self.assertEqual(len(flaky), 2)
        self.assertIn("has had its two", " ".join(verdicts.values()))

    def test_what_the_change_touches(self):
        tree = self.tree({name: once(FIRST["event"]) for name in ("mine", "other")})
        tree.write("src/mine_test.c", "\n")
        verdicts, flaky = tree.check()
        self.assertEqual(flaky, ["other"])
        self.assertIn("the change touches it", verdicts["mine"])

    def test_a_kit_touches_its_folder(self):
        tree = self.tree({"mine": once(FIRST["event"])})
        tree.write("test/t/bed.c", "\n")
        tree.commit("a kit")
        self.assertIn("the change touches it", tree.check()[0]["mine"])

    def test_without_a_base_the_last_hours_are_the_change(self):
        tree = self.tree({"mine": once(FIRST["event"])})
        self.assertIn("is not known", tree.check("--left", "2")[0]["mine"])

    def test_the_next_change_answers(self):
        tree = self.tree({"mine": once(FIRST["event"])})
        self.assertEqual(tree.check()[1], ["mine"])
        self.assertEqual(tree.rows()[0][0], "t/mine")
        self.assertEqual(tree.owed()[0], 0)  # not by the change in which it was seen
        os.rename(f"{tree.root}/test/flaky.tsv", f"{tree.root}/runs/flaky")  # a clone that is thrown away
        tree.write("a", "1\n")
        tree.commit("another change")
        status, said = tree.owed()
        self.assertEqual(status, 1)
        self.assertIn("t/mine was late in unit", said)
        os.rename(f"{tree.root}/runs/flaky", f"{tree.root}/test/flaky.tsv")
        self.assertEqual(tree.owed()[0], 1)
        test, step, day, commit, late, _ = tree.rows()[0]
        tree.write("test/flaky.tsv", "\t".join([test, step, day, commit, late, "it waits for a tick\n"]))
        tree.commit("the cause")
        self.assertEqual(tree.owed(), (0, ""))
        os.unlink(f"{tree.root}/runs/mine")
        self.assertIn("names it already", tree.check()[0]["mine"])


class Copies(unittest.TestCase):
    def test_eight_at_once(self):
        tree = Tree({"good": 'echo >>"$1"', "bad": 'mkdir "$1"'})
        self.addCleanup(tree.close)
        done = tree.run(sys.executable, os.path.join(HERE, "again"), "--copies", "build")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^FAIL t/bad .*  7 of 8 copies, ")
        self.assertRegex(done.stdout, r"(?m)^ok +t/good ")
        self.assertTrue(done.stdout.endswith("1 passed, 1 failed, 0 skipped\n"))


class Rows(unittest.TestCase):
    def test_a_row_of_the_client_tables(self):
        """A row that hangs once is flaky; one that crashes is not run again."""
        tree = Tree({})
        self.addCleanup(tree.close)
        table = (f"""hangs (once) | | | sh -c "echo >>{tree.root}/runs/a; [ $(wc -l <{tree.root}/runs/a) -gt 1 ] \\|\\| sleep 60" | | 2 |\n"""
                 f"""crashes | | | sh -c "echo >>{tree.root}/runs/b; [ $(wc -l <{tree.root}/runs/b) -gt 1 ] \\|\\| kill -SEGV $$" | | 9 |\n""")
        tree.write("build/rows.table", table)
        words = [os.path.join(HERE, "..", "test", "clients", "run"), "--fake", "--build", tree.root, "--part", "1/1", "--table", f"{tree.root}/build/rows.table"]
        log = f"{tree.root}/build/step.log"
        with open(log, "w", encoding="utf-8") as f:
            f.write(f"again: rows {' '.join(words)}\n" + tree.run(*words).stdout)
        done = tree.run(sys.executable, os.path.join(HERE, "again"), "--log", log, "--step", "clients", "--base", tree.base)
        self.assertIn("FLAKY hangs (once): late once", done.stdout, done.stderr)
        self.assertIn("crashes: not run again: a signal", done.stdout)
        self.assertTrue(done.stdout.endswith("1 flaky\n"))


if __name__ == "__main__":
    unittest.main()
