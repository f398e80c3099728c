#!/usr/bin/env python3
"""The suite sees what a driver does wrong: the pocket driver, built as a stranger builds one, with one breach at a time.

usage: breach_test.py BUILD HEADERS...     the build tree; where the midlayer's headers are
"""
import concurrent.futures
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
AT_A_TIME = 4  # they wait for what must not come, most of the time
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
    ("every thousandth completion comes twice", "cq.c", "wc[got++] = cq->ring[cq->tail++ % cq->size].wc;",
     "{\n\t\tstatic u32 count;\n\n\t\twc[got++] = cq->ring[cq->tail % cq->size].wc;\n\t\tcq->tail += ++count % 1000 != 0;\n\t}",
     "context", ["reentrant__eight_threads_on_one_cq_qp_srq"]),
    ("every transition is allowed", "qp.c", "ib_modify_qp_is_ok(now, to, qp->ib.qp_type, (enum ib_qp_attr_mask)mask)", "(int)to >= 0",
     "verbs", ["modify_qp__refuses_and_changes_nothing"]),
    ("a completion tells when it is polled", "cq.c", ".timestamp = e->time", ".timestamp = e->time ? pocket_clock() : 0",
     "extended", ["poll_cq_ex__tells_the_time_of_arrival_not_of_the_poll"]),
    ("an unknown flag of a CQ is ignored", "cq.c", "if (attr->flags & ~(u32)IB_CQ_FLAGS_TIMESTAMP_COMPLETION)", "if (attr->flags & 2)",
     "extended", ["create_cq_ex__refuses_what_it_does_not_know"]),
    # notification, once more
    ("an unarmed CQ tells of every completion", "cq.c", "return arm_count_is_due(cq) || fire;", "return true;",
     "notify", ["req_notify_cq__unarmed_is_silent"]),
    ("an arm tells for ever", "cq.c", "\tif (fire)\n\t\tcq->armed = 0;\n", "", "notify", ["req_notify_cq__one_event_per_arm"]),
    ("a solicited arm tells of any completion", "cq.c", "(cq->armed == IB_CQ_SOLICITED && wakes)", "cq->armed == IB_CQ_SOLICITED",
     "notify", ["req_notify_cq__solicited_waits_for_solicited"]),
    ("a counting arm does not see what waits", "cq.c", "else if (cq->head - cq->tail >= (u32)count)", "else if (0)",
     "notify", ["req_ncomp_notif__fires_at_the_count"]),
    ("peek_cq takes what it counts", "cq.c", "\twaiting = cq->head - cq->tail;\n", "\twaiting = cq->head - cq->tail;\n\tcq->tail = cq->head;\n",
     "notify", ["peek_cq__counts_and_takes_nothing"]),
    ("all vectors are one", "cq.c", "vectors[comp_vector]", "vectors[0]", "notify", ["comp_handler__two_vectors_run_in_parallel"]),
    ("a change of size loses the oldest completion", "cq.c", "for (u32 i = cq->tail; i != cq->head; i++)\n\t\t\tring",
     "for (u32 i = cq->tail += cq->tail != cq->head; i != cq->head; i++)\n\t\t\tring", "notify", ["resize_cq__keeps_every_completion"]),
    ("a change of size takes fewer places than wait", "cq.c", "if (ring && cq->head - cq->tail <= size)", "if (ring)",
     "notify", ["resize_cq__refuses_less_than_waits"]),
    ("a change of size forgets the counting arm", "cq.c", "cq->ncomp = cq->ncomp < size ? cq->ncomp : size;", "cq->ncomp = 0;",
     "notify", ["resize_cq__keeps_the_counting_arm"]),
    # memory
    ("a key's rights are not looked at", "memory.c", " || (r->access & access) != access", "", "memory", ["get_dma_mr__keeps_to_its_access"]),
    ("scattered pages may have holes", "memory.c", "(i > 0 && bufs[i].addr % PAGE)", "0", "memory", ["reg_phys_mr__refuses_holes"]),
    ("an old mapping's key still opens the new one", "memory.c", "\t\tr->valid = true;\n\t\tkey_renew(d, r);\n", "\t\tr->valid = true;\n",
     "memory", ["map_phys_fmr__maps_remaps_and_unmaps"]),
    ("an FMR is mapped without end", "memory.c", "if (fmr->maps < fmr->attr.max_maps)", "if (fmr->maps >= 0)",
     "memory", ["map_phys_fmr__only_so_often"]),
    ("a mapping may begin anywhere", "memory.c", " || iova % size", "", "memory", ["map_phys_fmr__refuses_bad_lists"]),
    ("an FMR stays open after its unmap", "memory.c", "\t\tfmr->region.valid = false;\n", "",
     "memory", ["fmr_pool__peer_reaches_it_until_the_flush"]),
    # objects and requests
    ("the request after the bad one is named", "qp.c", "\tif (err)\n\t\t*bad = wr;\n\treturn err;\n}\n\nstatic int qp_post_recv",
     "\tif (err)\n\t\t*bad = wr->next;\n\treturn err;\n}\n\nstatic int qp_post_recv", "verbs", ["post_send__names_the_bad_request"]),
    ("inline data is taken when its turn comes", "move.c", "\t\tmemcpy(to, s->inlined, s->inline_length);\n\t\t*length = s->inline_length;\n",
     "\t\t*length = s->inline_length;\n\t\tfor (int i = 0; i < s->wr.num_sge; to += s->sge[i++].length)\n"
     "\t\t\tmemcpy(to, (void *)(uintptr_t)s->sge[i].addr, s->sge[i].length);\n", "verbs", ["post_send__inline_data_is_taken_at_once"]),
    ("an addition answers with the sum", "move.c", "*word = before + wr->wr.atomic.compare_add;", "before = *word += wr->wr.atomic.compare_add;",
     "verbs", ["post_send__atomics"]),
    ("SEND with invalidate leaves the key valid", "move.c", "if (!pocket_invalidate(d, peer->ib.pd, s->wr.invalidate_rkey))", "if (0)",
     "verbs", ["post_send__send_with_invalidate"]),
    ("receives are not flushed", "qp.c", "for (; qp->rq.tail != qp->rq.head; qp->rq.tail++) {", "for (; 0;) {",
     "verbs", ["post_send__refused_before_rts_and_flushed_in_error"]),
    ("query_qp forgets a field", "qp.c", "\tif (mask & IB_QP_MIN_RNR_TIMER)\n\t\tto->min_rnr_timer = from->min_rnr_timer;\n", "",
     "verbs", ["query_qp__tells_what_modify_set"]),
    ("a refused change of a handle changes it", "device.c",
     "\tif (!pocket_way_is_ok(attr))\n\t\treturn -EINVAL;\n\tpthread_mutex_lock(&d->lock);\n\t((struct pocket_ah *)ib)->attr = *attr;\n"
     "\tpthread_mutex_unlock(&d->lock);\n\treturn 0;",
     "\tpthread_mutex_lock(&d->lock);\n\t((struct pocket_ah *)ib)->attr = *attr;\n\tpthread_mutex_unlock(&d->lock);\n"
     "\treturn pocket_way_is_ok(attr) ? 0 : -EINVAL;", "verbs", ["ah__create_query_modify_destroy"]),
    ("a datagram does not name its sender", "move.c", "\t\t\t    .src_qp = qp->ib.qp_num,\n", "", "verbs", ["ud__there_and_back_by_the_completion"]),
    ("a group is its first member", "move.c", "\t\t\t\tdatagram_deliver(d, qp, d->qps[i], s, *length);\n\t} else",
     "\t\t\t\t{\n\t\t\t\t\tdatagram_deliver(d, qp, d->qps[i], s, *length);\n\t\t\t\t\tbreak;\n\t\t\t\t}\n\t} else",
     "verbs", ["ud__multicast_reaches_every_member"]),
    # events
    ("a refusal is no event", "move.c", "\tpocket_event(peer->ib.device, IB_EVENT_QP_ACCESS_ERR, &peer->ib);\n", "", "event", ["qp_event__access_error"]),
    ("a drained send queue is no event", "qp.c", "if (to == IB_QPS_SQD && from != to && qp->attr.en_sqd_async_notify)", "if (0)",
     "event", ["qp_event__send_queue_drained"]),
    ("an SRQ tells of each receive below its limit", "qp.c", "\t\tsrq->limit = 0;\n\t\tpocket_event", "\t\tpocket_event",
     "event", ["srq_event__limit_reached_once_per_arm"]),
    ("the last receive is no event", "qp.c", "\tif (qp->srq && !was)\n\t\tpocket_event(qp->ib.device, IB_EVENT_QP_LAST_WQE_REACHED, &qp->ib);\n", "",
     "event", ["qp_event__last_wqe_reached"]),
    ("a CQ overflows in silence", "cq.c", "\tif (lost)\n\t\tpocket_event(ib->device, IB_EVENT_CQ_ERR, ib);\n", "", "event", ["cq_event__overflow"]),
]


def compile_file(source, target, flags):
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-fPIC", "-pthread", *flags, "-c", source, "-o", target], check=True)


def build_sound(folder, flags):
    """The objects of the driver as it is; each breach is another one of them."""
    shutil.copytree(HERE / "pocket", folder / "mine")
    shutil.copy(HERE / "driver.h", folder)
    for source in (folder / "mine").glob("*.c"):
        compile_file(source, source.with_suffix(".o"), flags)


def build(folder, name, stack, flags, file, old, new):
    """The driver with one breach, as folder/name.so."""
    text = (HERE / "pocket" / file).read_text()
    if old and text.count(old) != 1:
        sys.exit(f"{file} has this {text.count(old)} times: {old!r}")
    broken = folder / "mine" / f"{name}.c"
    broken.write_text("#include <time.h>\n" + text.replace(old, new) if old else text)
    compile_file(broken, folder / f"{name}.o", flags)
    sound = [folder / "mine" / (source.stem + ".o") for source in sorted((HERE / "pocket").glob("*.c")) if source.name != file]
    driver = folder / f"{name}.so"
    subprocess.run(["cc", "-shared", "-pthread", "-o", driver, folder / f"{name}.o", *sound, f"-L{stack}", "-lanyverbs"], check=True)
    return driver


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

    def attempt(number, breach):
        _, file, old, new, program, tests = breach
        driver = build(folder, f"broken{number}", tree / "lib" / "anyverbs", flags, file, old, new)
        return judge(tree / "test" / f"contract_{program}", tests, {**os.environ, "CONTRACT_DRIVER": str(driver)})

    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        folder = pathlib.Path(name)
        build_sound(folder, flags)
        for breach, (right, said) in zip(BREACHES, pool.map(attempt, range(len(BREACHES)), BREACHES)):
            print(f"{'ok  ' if right else 'FAIL'} {breach[0]}", flush=True)
            if not right:
                print(said[-2000:])
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
