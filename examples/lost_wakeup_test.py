#!/usr/bin/env python3
"""lost_wakeup_test: the classic consumer sleeps for ever with strict notification and only there; the careful one never does.

usage: lost_wakeup_test.py LOST_WAKEUP ANYVERBS
"""
import os
import subprocess
import sys

SEEN, ASLEEP = 0, 3
# A strict adapter never raises the event, however long one waits; what must come gets all the time it wants.
CASES = [
    ("1", "classic", 500, ASLEEP),
    ("1", "careful", 30000, SEEN),
    ("0", "classic", 30000, SEEN),
    ("0", "careful", 30000, SEEN),
    (None, "classic", 30000, SEEN),  # the default is eager
]

example, command = sys.argv[1:]
environment = dict(os.environ, ANYVERBS_NODE=f"lesson-{os.getpid()}", ANYVERBS_IDLE_S="30")
environment.pop("ANYVERBS_STRICT_NOTIFY", None)
failed = 0
for strict, style, wait_ms, want in CASES:
    setting = {} if strict is None else {"ANYVERBS_STRICT_NOTIFY": strict}
    ran = subprocess.run([example, style, str(wait_ms)], capture_output=True, text=True, timeout=60,
                         env={**environment, **setting})
    print(f"strict {strict}, {style}: {ran.returncode} {ran.stdout.strip()} {ran.stderr.strip()}")
    failed += ran.returncode != want
subprocess.run([command, "stop", "--force"], env=environment, capture_output=True, timeout=60)
print(f"{len(CASES) - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
