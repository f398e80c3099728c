#!/usr/bin/env python3
"""run_fuzz: runs a libFuzzer program for a while, beginning with its corpus. usage: run_fuzz.py PROGRAM CORPUS SECONDS

New inputs go to a folder that is deleted afterwards, unless one of them fails: its file stays, and its name is printed.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile


def main():
    program, corpus, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    folder = tempfile.mkdtemp(prefix="anyverbs-fuzz-")
    fresh = os.path.join(folder, "fresh")
    os.mkdir(fresh)
    known = [corpus] if os.path.isdir(corpus) else []
    done = subprocess.run([program, f"-max_total_time={seconds}", "-max_len=4096", "-print_final_stats=1", "-timeout=10",
                           f"-artifact_prefix={folder}/", fresh, *known], text=True, errors="replace", check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=seconds * 3 + 60, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stdout)
    found = [f for f in glob.glob(os.path.join(folder, "*")) if f != fresh]
    if done.returncode == 0 and not found and runs and int(runs.group(1)) > 1000:
        print(f"{runs.group(1)} inputs in {seconds} s, none failed")
        shutil.rmtree(folder)
        return 0
    print(done.stdout[-6000:])
    print("inputs that fail:", *found)
    return 1


if __name__ == "__main__":
    sys.exit(main())
