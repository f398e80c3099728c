#!/usr/bin/env python3
"""inherit_test.py: the calls of forked children on their parent's objects (test/inherit), on a host of a fabric.

usage: inherit_test.py BUILD_DIR
"""
import os
import sys
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")


class Inherit(Bed):
    def calls(self, program):
        self.fabric("up", "--topology", "fat-tree:2x2")
        self.until(lambda: self.fabric("hosts").count("ACTIVE") == 4)
        self.env["INHERIT_ADDRESS"] = "127.64.0.1"
        self.on("h1", os.path.join(self.build, "test", program), timeout=200)

    def test_verbs(self):
        self.calls("inherit_verbs")

    def test_rdmacm(self):
        self.calls("inherit_rdmacm")

    def test_rsocket(self):
        self.calls("inherit_rsocket")

    def test_umad(self):
        self.calls("inherit_umad")


if __name__ == "__main__":
    unittest.main()
