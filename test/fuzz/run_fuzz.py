#!/usr/bin/env python3
"""run_fuzz: runs a libFuzzer program for a while, beginning with its corpus. usage: run_fuzz.py PROGRAM TARGET.corpus

FUZZ_SECONDS says how long (60), FUZZ_SEED where its chances begin: 1 unless told, so that one tree is judged alike twice; 0 draws another
one each time, to look for more. New inputs go to a folder that is deleted afterwards, unless one of them fails: its file stays, and is
printed, and how it joins the corpus. TARGET.dict is the dictionary, if there is one.
"""
import base64
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import corpus

SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
ENV = {"ASAN_OPTIONS": "detect_leaks=0:handle_abort=1", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1", "ANYVERBS_LOG": "none"}
LEAST = 1000 # inputs; fewer have tried nothing
SHORT = 1024 # bytes: is printed in one line, which every log keeps


def show(path):
    with open(path, "rb") as f:
        content = f.read()
    print(f"the input that fails ({len(content)} bytes): {path}")
    if len(content) <= SHORT:
        print("fuzz: the input in base64:", base64.b64encode(content).decode())
        return
    print("  base64 -d >", os.path.basename(path), "<<END")
    print(base64.encodebytes(content).decode() + "END")


def fuzz(program, options, folder):
    """Runs it once: the process that has ended, and the number of inputs."""
    done = subprocess.run([program, *options], text=True, errors="replace", check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, timeout=SECONDS * 5 + 120, env={**os.environ, **ENV}, cwd=folder)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stdout)
    return done, int(runs.group(1)) if runs else 0


def main():
    program, packed = sys.argv[1], sys.argv[2]
    folder = tempfile.mkdtemp(prefix="anyverbs-fuzz-")
    fresh, seeds = os.path.join(folder, "fresh"), os.path.join(folder, "seeds")
    os.mkdir(fresh)
    corpus.unpack(packed, seeds)
    words = packed.removesuffix(".corpus") + ".dict"
    options = [f"-seed={SEED}", "-max_len=4096", "-print_final_stats=1", "-timeout=10", f"-artifact_prefix={folder}/",
               *([f"-dict={words}"] if os.path.exists(words) else []), fresh, seeds]
    done, runs = fuzz(program, [f"-max_total_time={SECONDS}", *options], folder)
    if done.returncode == 0 and runs <= LEAST: # on a loaded machine
        done, runs = fuzz(program, [f"-max_total_time={SECONDS * 4 + 60}", f"-runs={LEAST + 1}", *options], folder)
    edges = re.findall(r"cov: (\d+)", done.stdout)
    found = [f for f in glob.glob(os.path.join(folder, "*-*")) if os.path.isfile(f)]
    if done.returncode == 0 and not found and runs > LEAST:
        print(f"{runs} inputs, {(edges or ['?'])[-1]} edges, none failed")
        shutil.rmtree(folder)
        return 0
    print(done.stdout[-8000:])
    if done.returncode == 0 and all(os.path.basename(path).startswith("slow-unit-") for path in found):
        print(f"LATE: {runs} inputs, {len(found)} of them slow; over {LEAST} are asked for, and none slow")
    for path in found:
        show(path)
        print("  test/fuzz/corpus.py add", os.path.basename(packed).removesuffix(".corpus"), path)
    return 1


if __name__ == "__main__":
    sys.exit(main())
