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
WATCHED = ["never_sleep__watched_with_all_signals_blocked", "never_sleep__watched_from_a_completion_handler",
           "never_sleep__watched_from_an_event_handler", "never_sleep__beside_a_thread_that_does"]
NAP = "struct timespec nap = { 0, 1000 };\n\n\tnanosleep(&nap, NULL);\n"
BREACHES = [ # what; in this file: this, becomes that; the program, and its tests that must fail, all others apart
    ("nothing", "cq.c", "", "", "notify", []),
    ("a handler runs in the call that adds a completion", "cq.c", "\tif (fire)\n\t\tvector_queue(cq);\n\tif (lost)",
     "\tif (fire && cq->ib.comp_handler)\n\t\tcq->ib.comp_handler(&cq->ib, cq->ib.cq_context);\n\tif (lost)",
     "notify", ["comp_handler__runs_on_every_vector_outside_verbs"]),
    ("a second thread helps out while a handler runs", "cq.c", "\tpthread_mutex_lock(&v->lock);\n\tif (!cq->queued",
     "\tif (v->running == cq)\n\t\tv = &pocket_of(cq->ib.device)->vectors[v == pocket_of(cq->ib.device)->vectors];\n"
     "\tpthread_mutex_lock(&v->lock);\n\tif (!cq->queued", "notify", ["comp_handler__never_overlaps_itself"]),
    ("destroy_cq does not wait for the handler", "cq.c", "while (v->running == cq)", "while (0)",
     "notify", ["destroy_cq__waits_for_its_handler"]),
    ("poll_cq sleeps", "cq.c", "\tint got = 0;\n", "\tint got = 0;\n\t" + NAP,
     "context", ["never_sleep__without_calls_that_sleep"]),
    ("poll_cq sleeps, under the watch", "cq.c", "\tint got = 0;\n", "\tint got = 0;\n\t" + NAP, "watch", WATCHED),
    ("resize_cq sleeps with the lock that poll_cq takes", "cq.c", "\tif (ring && cq->head", "\t" + NAP + "\tif (ring && cq->head",
     "watch", WATCHED[3:]),
    ("modify_ah sleeps", "device.c", "\tif (!pocket_way_is_ok(attr))\n\t\treturn -EINVAL;\n\tpthread",
     "\t" + NAP + "\tif (!pocket_way_is_ok(attr))\n\t\treturn -EINVAL;\n\tpthread", "watch", WATCHED),
    ("a solicited arm weakens one for any completion", "cq.c", "\tif (cq->armed != IB_CQ_NEXT_COMP)\n\t\tcq->armed =", "\tcq->armed =",
     "notify", ["req_notify_cq__solicited_never_weakens"]),
    ("an error wakes nobody who wants solicited ones", "cq.c", "wakes = solicited || wc->status != IB_WC_SUCCESS", "wakes = solicited",
     "notify", ["req_notify_cq__solicited_takes_errors"]),
    ("a strict adapter tells of what waits already", "cq.c", "if (pocket_of(ib->device)->eager && ", "if (",
     "notify", ["req_notify_cq__completion_before_the_arm"]),
    ("missed completions are not reported", "cq.c", "missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail", "missed = 0",
     "notify", ["req_notify_cq__reports_missed_only_if_asked"]),
    ("missed completions are reported to who did not ask", "cq.c", "missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && ", "missed = ",
     "notify", ["req_notify_cq__reports_missed_only_if_asked"]),
    ("a solicited arm reports solicited ones only", "cq.c", "missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail",
     "missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail &&\n"
     "\t\t(!(flags & IB_CQ_SOLICITED) || (s32)(cq->wakes_end - cq->tail) > 0)",
     "notify", ["req_notify_cq__reports_missed_only_if_asked"]),
    ("a change of size forgets the arm", "cq.c", "\t\tcq->ring = ring;\n", "\t\tcq->ring = ring;\n\t\tcq->armed = 0;\n",
     "notify", ["resize_cq__keeps_the_arm"]),
    ("every thousandth completion comes twice", "cq.c", "wc[got++] = cq->ring[cq->tail++ % cq->size];",
     "{\n\t\tstatic u32 count;\n\n\t\twc[got++] = cq->ring[cq->tail % cq->size];\n\t\tcq->tail += ++count % 1000 != 0;\n\t}",
     "context", ["reentrant__eight_threads_on_one_cq_qp_srq"]),
    ("every transition is allowed", "qp.c", "ib_modify_qp_is_ok(now, to, qp->ib.qp_type, (enum ib_qp_attr_mask)mask)", "(int)to >= 0",
     "verbs", ["modify_qp__refuses_and_changes_nothing"]),
]


def build(folder, stack, flags, file, old, new):
    shutil.copytree(HERE / "pocket", folder / "mine", dirs_exist_ok=True)
    shutil.copy(HERE / "driver.h", folder)
    text = (folder / "mine" / file).read_text()
    if old and text.count(old) != 1:
        sys.exit(f"{file} has this {text.count(old)} times: {old!r}")
    (folder / "mine" / file).write_text("#include <time.h>\n" + text.replace(old, new) if old else text)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-pthread", *flags, "-o", folder / "mine.so",
                    *sorted((folder / "mine").glob("*.c")), f"-L{stack}", "-lanyverbs"], check=True)


def judge(program, tests, env):
    """(is it as it must be, what was said): just these tests fail, each by what it asserts, and the program ends by itself."""
    if tests and len(tests) == 1:
        env = {**env, "CONTRACT_TEST": tests[0]}
    try:
        done = subprocess.run([program], env=env, capture_output=True, text=True, errors="replace", timeout=100)
    except subprocess.TimeoutExpired:
        return False, "it does not end"
    said = done.stdout + done.stderr
    failed = {test for test in re.findall(r"^\[  FAILED  \] (\w+__\w+)$", said, re.M)}
    judged = "error: Failure!" in said if tests else "[       OK ]" in said
    return judged and "ended by signal" not in said and failed == set(tests) and done.returncode == bool(tests), said


def main():
    tree, wrong = pathlib.Path(sys.argv[1]), 0
    flags = [f"-I{headers}" for headers in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as name:
        for what, file, old, new, program, tests in BREACHES:
            build(pathlib.Path(name), tree / "lib" / "anyverbs", flags, file, old, new)
            right, said = judge(tree / "test" / f"contract_{program}", tests, {**os.environ, "CONTRACT_DRIVER": name + "/mine.so"})
            print(f"{'ok  ' if right else 'FAIL'} {what}", flush=True)
            if not right:
                print(said[-2000:])
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
