#!/usr/bin/env python3
"""tag_matching_test: the example says what docs/tag-matching.md shows.

usage: tag_matching_test.py TAG_MATCHING ANYVERBS
"""
import os
import re
import subprocess
import sys

example, command = sys.argv[1:]
page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "tag-matching.md")
environment = dict(os.environ, ANYVERBS_NODE=f"tags-{os.getpid()}", ANYVERBS_ADDR="own", ANYVERBS_IDLE_S="30")
ran = subprocess.run([example], capture_output=True, text=True, timeout=60, env=environment)
subprocess.run([command, "stop", "--force"], env=environment, capture_output=True, timeout=60)
with open(page, encoding="utf-8") as f:
    shown = re.search(r"```\n(buffer 1.*?)```", f.read(), re.S).group(1)
print(ran.stdout, ran.stderr)
sys.exit(ran.returncode != 0 or ran.stdout != shown)
