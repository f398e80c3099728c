/* ucp_tags.c: 8 bytes one way by UCX's tag matching, behind posted receives that do not match: what
 * bench/tags stands beside. Two processes on the first two cores; UCX_TLS says over what.
 *
 * In:    UCX's environment    Out: "ucp_N value us" for N posted receives, on standard output
 * Runs:  one thread in each process    Locks: none
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include "../test/pairs/pairs.h"

enum { CHUNKS = 15, ROUNDS = 2000, WARM = 2000, TAG = 7, ADDRESS = 4096 };

static ucp_worker_h worker;
static ucp_ep_h ep;

static double ucp_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void ucp_open(int fd)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = UCP_FEATURE_TAG };
	ucp_worker_params_t single = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				       .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_ep_params_t to = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	char mine[ADDRESS] = { 0 }, other[ADDRESS];
	ucp_address_t *address;
	ucp_context_h context;
	size_t length;

	must(ucp_init(&params, NULL, &context) == UCS_OK);
	must(ucp_worker_create(context, &single, &worker) == UCS_OK);
	must(ucp_worker_get_address(worker, &address, &length) == UCS_OK && length <= ADDRESS);
	memcpy(mine, address, length);
	must(other_tell(fd, mine, ADDRESS) && other_hear(fd, other, ADDRESS) == ADDRESS);
	to.address = (const ucp_address_t *)other;
	must(ucp_ep_create(worker, &to, &ep) == UCS_OK);
}

static void ucp_finish(ucs_status_ptr_t request)
{
	if (request == NULL)
		return;
	must(!UCS_PTR_IS_ERR(request));
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	ucp_request_free(request);
}

static ucs_status_ptr_t ucp_receive(ucp_tag_t tag)
{
	static uint64_t word;
	ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL };

	return ucp_tag_recv_nbx(worker, &word, sizeof(word), tag, UINT64_MAX, &param);
}

static void ucp_send(void)
{
	static const uint64_t word = 1;
	ucp_request_param_t param = { 0 };

	ucp_finish(ucp_tag_send_nbx(ep, &word, sizeof(word), TAG, &param));
}

static double ucp_pingpong(bool first, int rounds)
{
	double begin = ucp_now();

	for (int i = 0; i < rounds; i++) {
		ucs_status_ptr_t receive = ucp_receive(TAG);

		if (first)
			ucp_send();
		ucp_finish(receive);
		if (!first)
			ucp_send();
	}
	return (ucp_now() - begin) / rounds / 2;
}

static int ucp_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void ucp_run(int fd, bool first)
{
	static const uint32_t posted[] = { 0, 1000, 50000 };
	double chunk[CHUNKS];
	uint32_t n = 0;

	ucp_open(fd);
	for (int i = 0; i < 3; i++) {
		for (; n < posted[i]; n++)
			must(!UCS_PTR_IS_ERR(ucp_receive(TAG + 1 + n)));
		ucp_pingpong(first, WARM);
		for (int c = 0; c < CHUNKS; c++)
			chunk[c] = ucp_pingpong(first, ROUNDS);
		qsort(chunk, CHUNKS, sizeof(chunk[0]), ucp_compare);
		if (first)
			printf("ucp_%u %.3f us\n", posted[i], chunk[CHUNKS / 2]);
	}
}

int main(void)
{
	int fd;
	pid_t child = other_fork_pinned(&fd);

	must(child >= 0);
	ucp_run(fd, child != 0);
	fflush(stdout);
	_Exit(0); /* the other one may be gone before UCX says goodbye to it */
}
