/* ucx_wait.c: two threads, each with a UCX worker of its own, pass a checked message to and fro and
 * sleep whenever nothing is there. usage: ucx_wait wait|poll BYTES ROUNDS
 * In: `wait`: sleep in ucp_worker_wait; `poll`: arm, then poll() the worker's descriptor
 * Out: "ok BYTES" when every round has passed; SIGALRM ends a program that sleeps for ever
 * Runs: two threads
 * Locks: none
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { LONGEST_S = 100, TAG = 7 };

struct side {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	ucp_ep_h ep;
	int descriptor, first, errors;
	unsigned char *buf;
	pthread_t thread;
};

static int sleeps_in_poll, bytes, rounds;

static void must(ucs_status_t status, const char *what)
{
	if (status == UCS_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
	exit(1);
}

static void side_open(struct side *s)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP };
	ucp_worker_params_t worker = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				       .thread_mode = UCS_THREAD_MODE_SERIALIZED };
	ucp_config_t *config;
	size_t length;

	must(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	must(ucp_init(&params, config, &s->context), "ucp_init");
	ucp_config_release(config);
	must(ucp_worker_create(s->context, &worker, &s->worker), "ucp_worker_create");
	must(ucp_worker_get_address(s->worker, &s->address, &length), "ucp_worker_get_address");
	must(ucp_worker_get_efd(s->worker, &s->descriptor), "ucp_worker_get_efd");
	s->buf = malloc((size_t)bytes);
}

static void side_connect(struct side *s, const struct side *peer)
{
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
				   .address = peer->address };

	must(ucp_ep_create(s->worker, &params, &s->ep), "ucp_ep_create");
}

/* Sleeps until there may be something to do. UCX does not look again after it has armed. */
static void side_sleep(struct side *s)
{
	struct pollfd p = { .fd = s->descriptor, .events = POLLIN };
	ucs_status_t status;

	if (!sleeps_in_poll) {
		must(ucp_worker_wait(s->worker), "ucp_worker_wait");
		return;
	}
	status = ucp_worker_arm(s->worker);
	if (status == UCS_ERR_BUSY)
		return;
	must(status, "ucp_worker_arm");
	poll(&p, 1, -1);
}

static void side_finish(struct side *s, void *request)
{
	ucs_status_t status;

	if (request == NULL)
		return;
	must(UCS_PTR_STATUS(request) < 0 ? UCS_PTR_STATUS(request) : UCS_OK, "a request");
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		if (ucp_worker_progress(s->worker) == 0)
			side_sleep(s);
	must(status, "a request's end");
	ucp_request_free(request);
}

static void side_send(struct side *s, int round)
{
	ucp_request_param_t none = { 0 };

	for (int i = 0; i < bytes; i++)
		s->buf[i] = (unsigned char)(i * 31 + round);
	side_finish(s, ucp_tag_send_nbx(s->ep, s->buf, (size_t)bytes, TAG, &none));
}

static void side_receive(struct side *s, int round)
{
	ucp_request_param_t none = { 0 };

	memset(s->buf, 0, (size_t)bytes);
	side_finish(s, ucp_tag_recv_nbx(s->worker, s->buf, (size_t)bytes, TAG, ~0ULL, &none));
	for (int i = 0; i < bytes; i++)
		s->errors += s->buf[i] != (unsigned char)(i * 31 + round);
}

static void side_close(struct side *s)
{
	ucp_request_param_t none = { 0 };

	side_finish(s, ucp_ep_close_nbx(s->ep, &none));
}

static void *side_run(void *arg)
{
	struct side *s = arg;

	for (int round = 0; round < rounds; round++) {
		if (s->first)
			side_send(s, round);
		side_receive(s, round);
		if (!s->first)
			side_send(s, round);
	}
	side_close(s);
	return NULL;
}

int main(int argc, char **argv)
{
	struct side sides[2] = { { .first = 1 }, { .first = 0 } };

	if (argc != 4)
		return 2;
	sleeps_in_poll = strcmp(argv[1], "poll") == 0;
	bytes = atoi(argv[2]);
	rounds = atoi(argv[3]);
	alarm(LONGEST_S);
	for (int i = 0; i < 2; i++)
		side_open(&sides[i]);
	for (int i = 0; i < 2; i++)
		side_connect(&sides[i], &sides[!i]);
	for (int i = 0; i < 2; i++)
		pthread_create(&sides[i].thread, NULL, side_run, &sides[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(sides[i].thread, NULL);
	for (int i = 0; i < 2; i++) {
		ucp_worker_release_address(sides[i].worker, sides[i].address);
		ucp_worker_destroy(sides[i].worker);
		ucp_cleanup(sides[i].context);
		free(sides[i].buf);
	}
	if (sides[0].errors + sides[1].errors != 0)
		printf("wrong: %d bytes\n", sides[0].errors + sides[1].errors);
	else
		printf("ok %d\n", bytes);
	return sides[0].errors + sides[1].errors != 0;
}
