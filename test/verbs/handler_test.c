/* handler_test.c: a program that has handlers of SIGSEGV and SIGBUS of its own, before and after it
 * registers, and that blocks them: copies of ours that fault do not end it, and what is its own
 * fault reaches its handler, or ends it.
 *
 * In:    VERBS_VARIANT: with "shim" in it, that is preloaded; "direct": memory is missed by the
 *        initiator's own copy
 * Out:   verdicts
 * Runs:  two processes; the child's memory vanishes
 * Locks: none
 */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum { PAGE = 4096, LONG = 16 * PAGE };

static sigjmp_buf back;
static volatile int heard;

static void on_fault(int number)
{
	heard++;
	siglongjmp(back, 1);
}

static void on_alarm(int number) {}

/* A fault of the program's own: is its handler called? */
static bool is_heard(void)
{
	uint8_t *hole = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int before = heard;

	must(hole != MAP_FAILED);
	if (sigsetjmp(back, 1) == 0)
		*(volatile uint8_t *)hole = 1;
	munmap(hole, PAGE);
	return heard == before + 1;
}

/* Without a handler it ends a process, by the right signal. */
static void dies_by_default(void)
{
	struct rlimit none = { 0, 0 };
	int status;
	pid_t child = fork();

	if (child == 0) {
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGSEGV, SIG_DFL);
		is_heard();
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child);
	must(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* Receives into memory that has gone. */
static void lose_memory(struct duo *d, uint32_t bytes)
{
	uint8_t *p = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = duo_register(d, p, LONG);
	struct ibv_sge sge = { (uintptr_t)p, bytes, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;
	int n;

	must(ibv_post_recv(d->qp, &wr, &bad) == 0);
	must(munmap(p, LONG) == 0);
	duo_tell(d, "", 1);
	while ((n = ibv_poll_cq(d->cq, 1, &wc)) == 0)
		;
	must(n == 1 && wc.status == IBV_WC_LOC_PROT_ERR);
	must(ibv_dereg_mr(mr) == 0);
}

/* With the shim it may install its handler now, block the two signals and have other handlers block
 * them, and sees all that as it asked for it. */
static void block_and_install(void)
{
	struct sigaction act = { .sa_handler = on_alarm }, old;
	sigset_t all, now;

	must(signal(SIGSEGV, on_fault) == SIG_DFL);
	must(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == on_fault);
	sigfillset(&all);
	act.sa_mask = all;
	must(sigaction(SIGALRM, &act, NULL) == 0);
	must(sigaction(SIGALRM, NULL, &old) == 0 && sigismember(&old.sa_mask, SIGSEGV) == 1);
	must(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	must(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
	must(sigismember(&now, SIGSEGV) == 1 && sigismember(&now, SIGBUS) == 1);
}

/* All signals are blocked, and no shim keeps the two out of that: a fault would end it. But the
 * initiator has found that there is nothing, so nobody looks. */
static void lose_unseen(struct duo *d)
{
	uint8_t *p = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = duo_register(d, p, LONG);
	struct duo_place place = duo_place(mr);
	struct ibv_wc wc;
	sigset_t all;
	char c;

	sigfillset(&all);
	must(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	must(munmap(p, LONG) == 0);
	duo_tell(d, &place, sizeof(place));
	for (int n = 0; n == 0;) {
		must(ibv_poll_cq(d->cq, 1, &wc) == 0);
		n = recv(d->fd, &c, 1, MSG_DONTWAIT) == 1;
	}
	must(ibv_dereg_mr(mr) == 0);
}

static void find_nothing(struct duo *d, enum ibv_wr_opcode opcode, uint32_t bytes)
{
	static uint8_t data[LONG];
	struct ibv_mr *mr = duo_register(d, data, LONG);
	struct ibv_sge sge = { (uintptr_t)data, bytes, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode,
					.send_flags = IBV_SEND_SIGNALED };
	struct duo_place place;
	struct ibv_wc wc;
	int n;

	must(duo_hear(d, &place, sizeof(place)));
	wr.wr.rdma.remote_addr = place.addr;
	wr.wr.rdma.rkey = place.rkey;
	must(ibv_post_send(d->qp, &wr, &bad) == 0);
	while ((n = ibv_poll_cq(d->cq, 1, &wc)) == 0)
		;
	must(n == 1 && wc.status == IBV_WC_REM_ACCESS_ERR);
	duo_tell(d, "", 1);
	must(ibv_dereg_mr(mr) == 0);
}

static void child_play(struct duo *d, bool shim, uint32_t bytes)
{
	struct sigaction old;
	sigset_t none;

	if (shim)
		block_and_install();
	lose_memory(d, bytes);
	sigemptyset(&none);
	must(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
	must(is_heard() && is_heard());
	if (!shim)
		return;
	must(signal(SIGSEGV, SIG_DFL) == on_fault);
	must(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
	dies_by_default();
}

static void parent_play(struct duo *d, uint32_t bytes)
{
	static uint8_t data[LONG];
	struct ibv_mr *mr = duo_register(d, data, LONG);
	struct ibv_sge sge = { (uintptr_t)data, bytes, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;
	char c;
	int n;

	must(duo_hear(d, &c, 1));
	must(ibv_post_send(d->qp, &wr, &bad) == 0);
	while ((n = ibv_poll_cq(d->cq, 1, &wc)) == 0)
		;
	must(n == 1 && wc.status == IBV_WC_REM_OP_ERR);
	must(ibv_dereg_mr(mr) == 0);
}

static const uint32_t sizes[] = { 8, 100, 1000, LONG };

static void play(struct duo *d, const char *variant, unsigned int i)
{
	bool shim = strstr(variant, "shim") != NULL;

	if (strstr(variant, "direct") != NULL && d->child == 0)
		lose_unseen(d);
	else if (strstr(variant, "direct") != NULL)
		find_nothing(d, i % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, sizes[i]);
	else if (d->child == 0)
		child_play(d, shim, sizes[i]);
	else
		parent_play(d, sizes[i]);
}

int main(void)
{
	const char *variant = getenv("VERBS_VARIANT");
	struct duo d;

	must(variant != NULL);

	pair_supervise();
	if (strstr(variant, "shim") == NULL)
		signal(SIGSEGV, on_fault);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int status, pid = fork();

		if (pid == 0) {
			duo_start(&d);
			play(&d, variant, i);
			exit(duo_end(&d) ? 0 : 1);
		}
		must(waitpid(pid, &status, 0) == pid);
		must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return 0;
}
