#!/usr/bin/env python3
"""Every test that docs/contract.md names exists in a file of the name it gives."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
tests = {}
for path in [*root.glob("src/**/*_test.c"), *root.glob("test/contract/*_test.c")]:
    found = re.findall(r"^static void (\w+__\w+)\(void \*\*state\)", path.read_text(), re.M)
    tests.setdefault(path.stem, set()).update(found)

named = missing = 0
for number, line in enumerate((root / "docs/contract.md").read_text().splitlines(), 1):
    file = None
    for quoted in re.findall(r"`([^`]+)`", line.rpartition(" | ")[2]) if line.startswith("| ") else []:
        match = re.fullmatch(r"(?:(\w+_test): )?(\w+__\w+)", quoted)
        if not match:
            continue
        file = match[1] or file
        named += 1
        if match[2] not in tests.get(file, ()):
            missing += 1
            print(f"docs/contract.md:{number}: there is no {file}: {match[2]}")
print(f"{named} tests named, {missing} missing")
sys.exit(missing > 0 or named < 50)
