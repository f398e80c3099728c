/* explain_test.c: what `anyverbs qp` says of a queue pair: PSNs, queues, retries, the window, the
 * last error, against what was done with it.
 * In: the command's output    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "pair.h"

enum { BYTES = 1 << 20, MESSAGES = 5, POSTED = 3, TEXT = 8192, LINE = 200 };

static void open_rc(void)
{
	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1 });
}

/* What the command prints about the queue pair of this process' end. */
static const char *explained(const struct end *e)
{
	static char text[TEXT];
	char line[LINE];
	size_t n;
	FILE *f;

	snprintf(line, sizeof(line), VERBS_COMMAND " qp %d %u", (int)getpid(), e->at.qpn[0]);
	f = popen(line, "r");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	assert_int_equal(pclose(f), 0);
	return text;
}

static void says(const char *text, const char *line)
{
	if (strstr(text, line) == NULL)
		fail_msg("no \"%s\" in:\n%s", line, text);
}

static bool is_wire(void)
{
	const char *paths = getenv("ANYVERBS_PATHS");

	return paths != NULL && strcmp(paths, "udp") == 0;
}

static void send_some(uint32_t count)
{
	struct side_wr w = end_op(&pair.a, IBV_WR_SEND, 0, 8, &pair.b, 0);
	struct side_wr r = end_wr(&pair.b, 0, 8);

	end_recv(&pair.b, 0, &r, count);
	end_send_many(&pair.a, 0, &w, count, 1);
	for (uint32_t i = 0; i < count; i++) {
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	}
}

static void explain__psns_and_queues(void **state)
{
	struct side_wr r;
	char line[LINE];
	const char *text;

	(void)state;
	open_rc();
	r = end_wr(&pair.a, 0, 8);
	end_recv(&pair.a, 0, &r, POSTED);
	send_some(MESSAGES);
	text = explained(&pair.a);
	snprintf(line, sizeof(line), "\n  sends PSN 0x%06x next", SIDE_PSN + MESSAGES);
	says(text, line);
	snprintf(line, sizeof(line), "; all before 0x%06x are acknowledged", SIDE_PSN + MESSAGES);
	if (is_wire())
		says(text, line);
	snprintf(line, sizeof(line), "\n  awaits    PSN 0x%06x, behind 0 messages\n", SIDE_PSN);
	says(text, line);
	says(text, "\n  sends     0 not complete, 0 of them ");
	says(text, "\n  receives  3 posted; ");
	says(text, is_wire() ? "\n  window    0 bytes in flight to the peer's process, " :
			       "\n  window    none: on this way no packet is lost\n");
	assert_null(strstr(text, "last one"));
}

static void explain__the_last_error_is_no_flush(void **state)
{
	struct side_wr w, next;
	const char *text;

	(void)state;
	open_rc();
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 8, &pair.b, 0);
	w.rkey ^= 0xff;
	next = end_op(&pair.a, IBV_WR_SEND, 0, 8, &pair.b, 0);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_ACCESS_ERR);
	end_send(&pair.a, 0, &next);
	end_expect(&pair.a, SENDS, IBV_WC_WR_FLUSH_ERR);
	text = explained(&pair.a);
	says(text, ": RC, ERR\n");
	says(text, "\n  errors    2 completions with an error\n"
		   "  last one  REM_ACCESS_ERR of a send request: the peer's key does not ");
}

static void explain__the_error_of_a_receive(void **state)
{
	struct side_wr w, r;

	(void)state;
	open_rc();
	r = end_wr(&pair.a, 0, 8);
	w = end_op(&pair.b, IBV_WR_SEND, 0, 16, &pair.a, 0);
	end_recv(&pair.a, 0, &r, 1);
	end_send(&pair.b, 0, &w);
	end_expect(&pair.a, RECVS, IBV_WC_LOC_LEN_ERR);
	end_expect(&pair.b, SENDS, IBV_WC_REM_INV_REQ_ERR);
	says(explained(&pair.a), "\n  last one  LOC_LEN_ERR of a receive: ");
}

/* Who may not read the process' memory is told so, and sees the rest. */
static void explain__without_the_right(void **state)
{
	const char *text;

	(void)state;
	open_rc();
	if (geteuid() == 0)
		skip(); /* root may read everything */
	assert_int_equal(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
	text = explained(&pair.a);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
	says(text, ": RC, RTS\n");
	says(text, "\n  inside    PSNs, retries and window cannot be read: Permission denied\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(explain__psns_and_queues, pair_teardown),
		cmocka_unit_test_teardown(explain__the_last_error_is_no_flush, pair_teardown),
		cmocka_unit_test_teardown(explain__the_error_of_a_receive, pair_teardown),
		cmocka_unit_test_teardown(explain__without_the_right, pair_teardown),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, pair_group_setup, pair_group_teardown);
}
