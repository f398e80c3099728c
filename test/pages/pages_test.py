#!/usr/bin/env python3
"""pages_test.py: runs every command of a page as it stands, and compares what it prints with what the page shows.

usage: pages_test.py BUILD_DIR PAGE.md [--here]

A command is a line of a code block that begins with "$ "; the lines behind it are what it prints. All commands of a page run in one shell, at
the top of a tree whose sources are this one's and whose build/ is a scratch folder with BUILD_DIR's bin and lib; with --here in the tree itself, whose build/ is BUILD_DIR. HOME is a scratch folder. A block ends when its
background jobs have. Its lines may come in any order, since its programs run side by side; "..." inside a line stands for any text, a line
"..." for any lines. Each command must succeed. Blocks without a "$ " are not run.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SECONDS = 240
REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARK = "@@"


def blocks(text):
    """(line number, commands, lines that they print) of each block that has commands."""
    found = []
    for match in re.finditer(r"^```[a-z]*\n(.*?)^```$", text, re.S | re.M):
        lines = match[1].rstrip("\n").split("\n")
        if any(line.startswith("$ ") for line in lines):
            number = text.count("\n", 0, match.start()) + 1
            found.append((number, [line[2:] for line in lines if line.startswith("$ ")],
                          [line for line in lines if line.strip() and not line.startswith("$ ")]))
    return found


def compare(shown, printed):
    """What differs, as lines."""
    rest = list(printed)
    missing = []
    for line in shown:
        if line == "...":
            continue
        wanted = loose(line)
        hit = next((i for i, said in enumerate(rest) if wanted.fullmatch(said)), None)
        if hit is None:
            missing.append("the page shows, and nothing prints: " + line)
        else:
            del rest[hit]
    if "..." not in shown:
        missing += ["printed, and not on the page: " + line for line in rest]
    return missing


def loose(line):
    """Matches the line with any blanks for blanks and any text for "..."."""
    parts = []
    for part in line.strip().split("..."):
        words = [re.escape(word) for word in part.split()]
        parts.append((r"\s*" if part[:1].isspace() else "") + r"\s+".join(words) + (r"\s*" if part[-1:].isspace() else ""))
    return re.compile(r"\s*" + ".*".join(parts) + r"\s*")


def scratch_tree(build, root):
    for name in os.listdir(REPO):
        if not name.startswith((".", "build")):
            os.symlink(os.path.join(REPO, name), os.path.join(root, name))
    os.mkdir(os.path.join(root, "build"))
    for name in ("bin", "lib"):
        os.symlink(os.path.join(build, name), os.path.join(root, "build", name))
    os.mkdir(os.path.join(root, "home"))


def script(page):
    """One shell: a block's output stands between marks."""
    lines = [f"trap 'echo \"{MARK}failed: $BASH_COMMAND\"' ERR"]
    for i, (_, commands, _) in enumerate(page):
        lines += [f"echo; echo {MARK}{i}", *commands, "wait"]
    return "\n".join(lines) + f"\necho; echo {MARK}{len(page)}\n"


def run(text, folder, home):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "LD_"))}
    env.update(HOME=home, LC_ALL="C", PS1="$ ", ANYVERBS_NODE=f"pages-{os.getpid()}", ANYVERBS_IDLE_S="5")
    ran = subprocess.run(["bash", "--norc", "-c", text], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS, check=False)
    parts = re.split(rf"(?m)^{MARK}(\d+)\n", ran.stdout)
    return {int(parts[i]): [line for line in parts[i + 1].split("\n") if line.strip()] for i in range(1, len(parts) - 1, 2)}


def main():
    build, name, here = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), "--here" in sys.argv[3:]
    if here and os.path.realpath(build) != os.path.realpath(os.path.join(REPO, "build")):
        print("skipped: the page is about build/, and that is not", build)
        return 77
    with open(name, encoding="utf-8") as f:
        page = blocks(f.read())
    root = tempfile.mkdtemp(prefix="anyverbs-page-")
    failed = 0
    try:
        scratch_tree(build, root)
        said = run(script(page), REPO if here else root, os.path.join(root, "home"))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for i, (number, commands, shown) in enumerate(page):
        printed = said.get(i, [])
        wrong = [line for line in printed if line.startswith(MARK)] + compare(shown, [line for line in printed if not line.startswith(MARK)])
        if i + 1 not in said:
            wrong.append("the shell did not get behind this block")
        print(f"{os.path.basename(name)}:{number}: {'FAIL' if wrong else 'ok'}: {commands[0]}")
        for line in wrong:
            print("   ", line)
        failed += bool(wrong)
    print(f"{len(page) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0 or not page


if __name__ == "__main__":
    sys.exit(main())
