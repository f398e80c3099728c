#!/usr/bin/env python3
"""fabric_kill_test.py: kill -9 of OpenSM and of the node that carries the fabric, at random instants of a subnet that is being
brought up or changed: all ports come back, and no process hangs.

usage: fabric_kill_test.py BUILD_DIR [INSTANTS [SEED]]
"""
import os
import random
import shutil
import sys
import time
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
INSTANTS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 20
SEED = int(sys.argv.pop(1)) if len(sys.argv) > 1 else random.randrange(1 << 32)
MISSING = [p for p in ("opensm", "sminfo") if shutil.which(p) is None]
CONF = "transaction_timeout 50\nmax_smps_timeout 200\n"  # a lost MAD is sent again soon


class Kills(Bed):
    def is_up(self):
        """Every link is active, and the subnet manager answers another host."""
        show = self.fabric("show").splitlines()
        if not all("ACTIVE" in line for line in show if "->" in line):
            return False
        try:
            return "SMINFO_MASTER" in self.on("h4", "sminfo", "-t", "200")
        except AssertionError:
            return False

    def test_kills(self):
        rng = random.Random(SEED)
        self.fabric("up", "--no-sm", "--topology", "fat-tree:2x2,radix=4")
        sm = self.opensm("h1", conf=CONF, up=False)
        for i in range(INSTANTS):
            victim = rng.choice(("opensm", "node"))
            change = rng.choice((("link", "h3:1", "down"), ("reboot", "leaf2"), None))
            pause_s = rng.random() * 0.4
            with self.subTest(seed=SEED, instant=i, victim=victim, change=change, pause_s=pause_s):
                if change is not None:
                    self.fabric(*change)
                time.sleep(pause_s)
                if victim == "opensm":
                    sm.kill()
                    sm = self.opensm("h1", conf=CONF, up=False)
                else:
                    self.kill_node()
                if change is not None and change[0] == "link":
                    self.fabric("link", "h3:1", "up")
                self.until(self.is_up, 30)
                self.assertIsNone(sm.process.poll())
        self.pair("ibv_rc_pingpong", "-n", "100", hosts=("h1", "h4"))


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main()
