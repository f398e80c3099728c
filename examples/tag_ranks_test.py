#!/usr/bin/env python3
"""tag_ranks_test: the small MPI over tag-matching SRQs, by shared memory and by UDP. What each rank says of its receives and messages is
held to MPI's rules by the judge.

usage: tag_ranks_test.py TAG_RANKS JUDGE ANYVERBS
"""
import glob
import os
import subprocess
import sys
import tempfile

# paths, ranks, messages of each rank, the longest one, seed
CASES = [
    ("shm", 2, 300, 8 << 20, 1),
    ("shm", 4, 300, 1 << 20, 2),
    ("shm", 5, 200, 20000, 3),
    ("shm", 3, 400, 100, 4),
    ("udp", 2, 100, 8 << 20, 5),
    ("udp", 4, 100, 100000, 6),
]

example, judge, command = sys.argv[1:]
environment = dict(os.environ, ANYVERBS_NODE=f"tags-{os.getpid()}", ANYVERBS_IDLE_S="30",
                   ANYVERBS_ADDR=f"127.98.{os.getpid() // 250 % 256}.{1 + os.getpid() % 250}")
failed = 0


def run(words, env, seconds=90):
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=env, check=False)
        return ran.returncode, (ran.stdout + ran.stderr).strip()
    except subprocess.TimeoutExpired as late:
        return 124, f"not done within {seconds} s: {(late.stdout or b'').decode()[-500:]}"


with tempfile.TemporaryDirectory(prefix="anyverbs-tags-") as folder:
    for path, ranks, messages, size, seed in CASES:
        env = dict(environment) if path == "shm" else dict(environment, ANYVERBS_PATHS="udp")
        trace = os.path.join(folder, "trace")
        status, said = run([example, "--ranks", str(ranks), "--messages", str(messages), "--bytes", str(size), "--seed", str(seed),
                            "--trace", trace], env)
        if status == 0:
            status, said = run([judge, str(ranks * messages), *sorted(glob.glob(trace + ".*"))], env)
        print(f"{path}, {ranks} ranks, up to {size} bytes, seed {seed}: {'ok' if status == 0 else said}", flush=True)
        failed += status != 0
        for name in glob.glob(trace + ".*"):
            os.remove(name)
subprocess.run([command, "stop", "--force"], env=environment, capture_output=True, timeout=60, check=False)
print(f"{len(CASES) - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
