#!/usr/bin/env python3
"""docs/contract.md and the suite say the same: every test that is named exists in a file of the name it gives, every test of
the suite is named, each program runs over the drivers that the table tells, and docs/linux-6.1.md lists the
names that linux61_test.c links, and the answers that mistakes61_test.c and gone61_test.c expect. And every test that docs/verification.md
names exists."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
tests = {}
for path in [*root.glob("src/**/*_test.c"), *root.glob("test/contract/*_test.c")]:
    found = re.findall(r"^static void (\w+__\w+)\(void \*\*state\)", path.read_text(), re.M)
    tests.setdefault(path.stem, set()).update(found)

text = (root / "docs/contract.md").read_text()
named, wrong = set(), []
for number, line in enumerate(text.splitlines(), 1):
    file = None
    for quoted in re.findall(r"`([^`]+)`", line.rpartition(" | ")[2]) if line.startswith("| ") else []:
        match = re.fullmatch(r"(?:(\w+_test): )?(\w+__\w+)", quoted)
        if not match:
            continue
        file = match[1] or file
        named.add(match[2])
        if match[2] not in tests.get(file, ()):
            wrong.append(f"docs/contract.md:{number}: there is no {file}: {match[2]}")
for path in root.glob("test/contract/*_test.c"):
    for test in sorted(tests[path.stem] - named):
        if re.search(rf"\b{test}\b", path.read_text()):
            wrong.append(f"docs/contract.md: does not name {path.stem}: {test}")

told = {}
for programs, variants in re.findall(r"^\| ((?:`\w+_test`,? ?)+) \| ([\w -]+) \|$", text, re.M):
    told.update({program: variants.split() for program in re.findall(r"`(\w+)`", programs)})
built = {f"{name}_test": variants.split() for name, variants in
         re.findall(r"^ *contract_test\((\w+) (?:\d+|\$\{\w+\}) ([\w -]+)\)", (root / "test/contract/CMakeLists.txt").read_text(), re.M)}
if told != built:
    wrong.append(f"docs/contract.md: programs run over {built}, not {told}")
listed = re.findall(r"^\| `(\w+)` \| ", (root / "docs/linux-6.1.md").read_text().partition("## The list")[2], re.M)
linked = re.findall(r"^\tNAME\((\w+)\)", (root / "test/contract/linux61_test.c").read_text(), re.M)
if listed != linked:
    wrong.append(f"docs/linux-6.1.md: lists other names than linux61_test.c: {sorted(set(listed) ^ set(linked))}")
tested = []
for file in "mistakes61_test.c", "gone61_test.c":
    for macro, call, mistake, answer in re.findall(r'^\t(ANSWERS|GIVES|NOTHING|STAYS)\((\w+),\s*"([^"]*)",\s*("[^"]*"|[^,]*),', (root / "test/contract" / file).read_text(), re.M):
        tested.append((call, mistake, {"NOTHING": "nothing happens", "STAYS": "it stays, with a warning"}.get(macro, answer.strip('"'))))
errors = (root / "docs/linux-6.1.md").read_text().partition("## Errors")[2].partition("## ")[0].partition("Elsewhere")[0]
written = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", errors, re.M)
if sorted(tested) != sorted(written):
    wrong.append(f"docs/linux-6.1.md: the errors are not those of mistakes61_test.c and gone61_test.c: {sorted(set(tested) ^ set(written))}")
everywhere = set()
for room in "src", "lib", "shim", "test", "tools":
    for path in root.glob(room + "/**/*_test.c"):
        everywhere.update(re.findall(r"\b[a-z]\w*__\w+", path.read_text()))
    for path in root.glob(room + "/**/*_test.py"):
        everywhere.update(re.findall(r"\bdef (test_\w+)", path.read_text()))
for number, line in enumerate((root / "docs/verification.md").read_text().splitlines(), 1):
    for start, middle, end in re.findall(r"`(\.\.\.|)(\w*__\w*|test_\w+)(\*?)`", line):
        pattern = re.compile((r"\w*" if start else "") + middle + (r"\w*" if end else ""))
        if not any(pattern.fullmatch(test) for test in everywhere):
            wrong.append(f"docs/verification.md:{number}: there is no test {middle}{end}")
print("\n".join([*wrong, f"{len(named)} tests named, {len(wrong)} mistakes"]))
sys.exit(bool(wrong) or len(named) < 50 or not built)
