#!/usr/bin/env python3
"""crowd_test.py: a process on each of many hosts of a fabric, all connected to all: every byte arrives, a barrier of all of them
completes, and what their rings take stays within 8 GiB for 256 hosts, and as much for each pair of fewer.

usage: crowd_test.py BUILD_DIR [HOSTS]    a multiple of 16
"""
import os
import subprocess
import sys
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
HOSTS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 32
SHARE_KIB = 8 << 20  # of 256 hosts
PAIR_KIB = SHARE_KIB / (256 * 255 / 2)


class Crowd(Bed):
    command_s = 600  # while hundreds of processes end, each with maps of all others

    def test_all_to_all(self):
        self.fabric("up", "--topology", f"fat-tree:{HOSTS // 16}x16")
        crowd = os.path.join(self.build, "bench/crowd")
        done = subprocess.run(self.words("run", "--host", "h1", crowd, str(HOSTS)), env=self.env, capture_output=True, text=True, check=False,
                              timeout=1500)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}
        pairs = HOSTS * (HOSTS - 1) / 2
        shared, private = said["large_shared"], said["large_private"] + said["large_tables"]
        print(f"{HOSTS} hosts: {shared / pairs:.0f} KiB shared for each pair, {private / HOSTS:.0f} KiB of its own for each process")
        self.assertLess(shared + private, PAIR_KIB * pairs)


if __name__ == "__main__":
    unittest.main()
