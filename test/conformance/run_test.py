#!/usr/bin/env python3
"""run_test: the parser of unittest's verbose logs, on a log with the chatter that real ones have."""
import collections
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LOADER = importlib.machinery.SourceFileLoader("conformance_run", os.path.join(HERE, "run"))
SPEC = importlib.util.spec_from_loader("conformance_run", LOADER)
RUN = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(RUN)

LOG = """libibverbs: Warning: something
test_plain (tests.test_pd.PDTest.test_plain)
A docstring that ends with ok ... ok
test_old_python (tests.test_pd.PDTest) ... ok
test_fails (tests.test_pd.PDTest.test_fails)
Doc ... FAIL
test_errs (tests.test_pd.PDTest.test_errs)
Doc ... is_fork_initialized() = 1
ERROR
test_chatty (tests.test_pd.PDTest.test_chatty)
Doc ... line of the library
another line
ok
test_skips (tests.test_pd.PDTest.test_skips)
Doc ... skipped 'not supported'
test_of_no_suite (unittest.loader._FailedTest.test_of_no_suite) ... ERROR
test_says_ok_inside (tests.test_pd.PDTest.test_says_ok_inside)
Doc ... it is ok so far
test_last (tests.test_pd.PDTest.test_last)
Doc ...
======================================================================
ERROR: test_errs (tests.test_pd.PDTest.test_errs)
----------------------------------------------------------------------
Traceback ok
"""


class Parser(unittest.TestCase):
    def test_verdicts(self):
        got = {name.split(".")[-1]: verdict for name, verdict in RUN.parse(LOG).items()}
        self.assertEqual(got, {
            "test_plain": "ok", "test_old_python": "ok", "test_fails": "FAIL", "test_errs": "ERROR", "test_chatty": "ok",
            "test_skips": "skipped 'not supported'", "test_says_ok_inside": "NO VERDICT", "test_last": "NO VERDICT"})

    def test_list_names_at_least_fifty_cases_once(self):
        cases = RUN.read_list(os.path.join(HERE, "pyverbs-ok.txt"))
        self.assertGreaterEqual(len(cases), 50)
        with open(os.path.join(HERE, "pyverbs-ok.txt"), encoding="utf-8") as f:
            self.assertEqual(len(cases), sum(line.startswith("test_") for line in f))
        self.assertEqual(set(cases.values()), {"generic", "eth", "hugepage", "sysfs"})

    def test_what_a_fabric_leaves_out_is_listed_with_its_reason(self):
        without, added = RUN.read_difference(os.path.join(HERE, "pyverbs-ib.txt"))
        usual = RUN.read_list(os.path.join(HERE, "pyverbs-ok.txt"))
        self.assertLessEqual(set(without), set(usual))
        self.assertFalse(set(added) & set(usual))
        self.assertEqual([case for case, reason in without.items() if len(reason.split()) < 3], [])
        # of what is no matter of the link layer nothing is left out
        self.assertEqual([case for case in without if usual[case] == "generic"], [])
        self.assertEqual(set(RUN.wanted_cases(fabric=True)), (set(usual) - set(without)) | set(added))

    def test_a_newer_suite_is_the_list_and_what_differs(self):
        without, added = RUN.read_difference(os.path.join(HERE, "pyverbs-56.txt"))
        usual = RUN.read_list(os.path.join(HERE, "pyverbs-ok.txt"))
        self.assertLessEqual(set(without), set(usual))
        self.assertFalse(set(added) & set(usual))
        self.assertEqual(set(added.values()), {"generic"})
        self.assertEqual(len(RUN.wanted_cases(release="56")), len(usual) - len(without) + len(added))

    def test_counts_of_each_group(self):
        counts = collections.Counter({("generic", "passed"): 3, ("eth", "passed"): 1, ("eth", "failed"): 1})
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertEqual(RUN.conclude(counts), 1)
        self.assertEqual([line.strip() for line in said.getvalue().splitlines()],
                         ["eth: 1 passed, 1 failed", "generic: 3 passed, 0 failed", "4 passed, 1 failed, 0 skipped"])
        with contextlib.redirect_stdout(said):
            self.assertEqual(RUN.conclude(collections.Counter()), 1)


if __name__ == "__main__":
    unittest.main()
