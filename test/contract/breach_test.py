#!/usr/bin/env python3
"""The suite sees what a driver does wrong: the pocket driver, built as a stranger builds one, with one breach at a time.

usage: breach_test.py BUILD HEADERS...     the build tree; where the midlayer's headers are
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BREACHES = [ # what, in cq.c: this, becomes that; the program, and its test that must fail
    ("nothing", "", "", "notify", None),
    ("a handler runs in the call that adds a completion", "\tif (fire)\n\t\tvector_queue(cq);\n\tif (lost)",
     "\tif (fire && cq->ib.comp_handler)\n\t\tcq->ib.comp_handler(&cq->ib, cq->ib.cq_context);\n\tif (lost)",
     "notify", "comp_handler__runs_on_every_vector_outside_verbs"),
    ("poll_cq sleeps", "\tint got = 0;\n", "\tint got = 0;\n\tstruct timespec nap = { 0, 1000 };\n\n\tnanosleep(&nap, NULL);\n",
     "context", "never_sleep__without_calls_that_sleep"),
    ("a solicited arm weakens one for any completion", "\tif (cq->armed != IB_CQ_NEXT_COMP)\n\t\tcq->armed =", "\tcq->armed =",
     "notify", "req_notify_cq__solicited_never_weakens"),
    ("missed completions are not reported", "missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail", "missed = 0",
     "notify", "req_notify_cq__reports_missed_only_if_asked"),
    ("every thousandth completion comes twice", "wc[got++] = cq->ring[cq->tail++ % cq->size];",
     "{\n\t\tstatic u32 count;\n\n\t\twc[got++] = cq->ring[cq->tail % cq->size];\n\t\tcq->tail += ++count % 1000 != 0;\n\t}",
     "context", "reentrant__eight_threads_on_one_cq_qp_srq"),
]


def build(folder, stack, flags, old, new):
    shutil.copytree(HERE / "pocket", folder / "mine", dirs_exist_ok=True)
    shutil.copy(HERE / "driver.h", folder)
    text = (folder / "mine" / "cq.c").read_text()
    if old and text.count(old) != 1:
        sys.exit(f"cq.c has this {text.count(old)} times: {old!r}")
    (folder / "mine" / "cq.c").write_text("#include <time.h>\n" + text.replace(old, new) if old else text)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-pthread", *flags, "-o", folder / "mine.so",
                    *sorted((folder / "mine").glob("*.c")), f"-L{stack}", "-lanyverbs"], check=True)


def main():
    tree, wrong = pathlib.Path(sys.argv[1]), 0
    flags = [f"-I{headers}" for headers in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as name:
        for what, old, new, program, test in BREACHES:
            build(pathlib.Path(name), tree / "lib" / "anyverbs", flags, old, new)
            env = {**os.environ, "CONTRACT_DRIVER": name + "/mine.so"}
            if test:
                env["CONTRACT_TEST"] = test
            try:
                done = subprocess.run([tree / "test" / f"contract_{program}"], env=env, capture_output=True, text=True, timeout=100)
                said = done.stdout + done.stderr
                seen = done.returncode != 0
            except subprocess.TimeoutExpired:
                said, seen = "it does not end", True
            right = seen == bool(test) and ("PASSED" in said if not test else not re.search(r"Running 0 test", said))
            print(f"{'ok  ' if right else 'FAIL'} {what}")
            if not right:
                print(said[-2000:])
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
