/* ucx_storm.c: processes whose UCX workers all connect to each other at once, send one checked
 * message on each endpoint, and close all endpoints, round after round.
 * usage: ucx_storm PROCESSES WORKERS ROUNDS [still]
 * In: WORKERS: of each process; a round has P * (P - 1) * W * W endpoints. `still`: the last
 * process is stopped (SIGSTOP) in each round, until the others have done with each other
 * Out: "ok ENDPOINTS SECONDS", the endpoints of all rounds; the seconds leave out the opening of
 * devices, and the time for the process that stood still. SIGALRM ends a storm that hangs
 * Runs: PROCESSES processes, each with one thread and UCX's own
 * Locks: none; the processes meet at counters in shared memory
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { LONGEST_S = 170, PROCESSES_MAX = 16, WORKERS_MAX = 32, ADDRESS_MAX = 4096 };

/* What the processes share. */
struct meeting {
	unsigned all, living; /* atomic: arrivals at meetings of all, of all but the still one */
	unsigned wrong;	      /* atomic: messages with other bytes than their sender's */
	size_t length[PROCESSES_MAX][WORKERS_MAX];
	char address[PROCESSES_MAX][WORKERS_MAX][ADDRESS_MAX];
};

/* One endpoint, and the message that each of its ends sends to the other. */
struct way {
	int peer; /* process */
	ucp_ep_h ep;
	unsigned long out, in, expected;
	void *request[3]; /* UCX's; NULL: none, or done */
};
enum { SEND, RECEIVE, CLOSE };

static struct meeting *meeting;
static int processes, workers, rounds, me;
static int still = -1; /* the process that is stopped */
static pid_t pid[PROCESSES_MAX]; /* process 0 knows the others */
static ucp_context_h context;
static ucp_worker_h worker[WORKERS_MAX];
static struct way way[PROCESSES_MAX * WORKERS_MAX * WORKERS_MAX];
static int ways;

static void must(ucs_status_t status, const char *what)
{
	if (status == UCS_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
	exit(1);
}

static void progress(void)
{
	for (int i = 0; i < workers; i++)
		ucp_worker_progress(worker[i]);
}

/* Waits until this process has been here as often as each of `n`. A process that waits serves the
 * others' endpoints. */
static void meet(unsigned *arrived, unsigned *goal, int n)
{
	*goal += (unsigned)n;
	__atomic_fetch_add(arrived, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < *goal)
		progress();
}

static void meet_all(void)
{
	static unsigned goal;

	meet(&meeting->all, &goal, processes);
}

static void meet_living(void)
{
	static unsigned goal;

	meet(&meeting->living, &goal, processes - 1);
}

static void open_workers(void)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = UCP_FEATURE_TAG };
	ucp_worker_params_t single = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				       .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_config_t *config;

	must(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	must(ucp_init(&params, config, &context), "ucp_init");
	ucp_config_release(config);
	for (int i = 0; i < workers; i++) {
		ucp_address_t *address;
		size_t *length = &meeting->length[me][i];

		must(ucp_worker_create(context, &single, &worker[i]), "ucp_worker_create");
		must(ucp_worker_get_address(worker[i], &address, length), "ucp_worker_get_address");
		must(*length > ADDRESS_MAX ? UCS_ERR_BUFFER_TOO_SMALL : UCS_OK, "address");
		memcpy(meeting->address[me][i], address, *length);
		ucp_worker_release_address(worker[i], address);
	}
}

/* Tags and bytes: which worker sends to which one, in which round. */
static unsigned long name(int round, int from, int from_worker, int to, int to_worker)
{
	return (((unsigned long)round * 256 + (unsigned)from) * 256 + (unsigned)from_worker)
		       << 16 |
	       (unsigned)to << 8 | (unsigned)to_worker;
}

static void *started(void *request, const char *what)
{
	if (UCS_PTR_IS_ERR(request))
		must(UCS_PTR_STATUS(request), what);
	return request;
}

static void connect_one(struct way *w, int round, int i, int peer, int k)
{
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
				   .address = (void *)meeting->address[peer][k] };
	ucp_request_param_t none = { 0 };

	w->peer = peer;
	w->out = name(round, me, i, peer, k);
	w->expected = name(round, peer, k, me, i);
	w->in = 0;
	must(ucp_ep_create(worker[i], &params, &w->ep), "ucp_ep_create");
	w->request[SEND] = started(
		ucp_tag_send_nbx(w->ep, &w->out, sizeof(w->out), w->out, &none), "send");
	w->request[RECEIVE] = started(ucp_tag_recv_nbx(worker[i], &w->in, sizeof(w->in),
						       w->expected, ~0UL, &none),
				      "receive");
}

static void connect_all(int round)
{
	ways = 0;
	for (int i = 0; i < workers; i++)
		for (int k = 0; k < workers; k++)
			for (int p = 1; p < processes; p++)
				connect_one(&way[ways++], round, i, (me + p) % processes, k);
}

static int is_finished(void **request)
{
	ucs_status_t status;

	if (*request == NULL)
		return 1;
	status = ucp_request_check_status(*request);
	if (status == UCS_INPROGRESS)
		return 0;
	must(status, "a request's end");
	ucp_request_free(*request);
	*request = NULL;
	return 1;
}

static void finish(int which, int to_still)
{
	for (int i = 0; i < ways; i++)
		while ((way[i].peer == still) == to_still && !is_finished(&way[i].request[which]))
			progress();
}

/* Waits for the messages on the endpoints to the living processes, or to the still one, and closes
 * these endpoints all at once. */
static void finish_endpoints(int to_still)
{
	ucp_request_param_t flush = { 0 };

	finish(SEND, to_still);
	finish(RECEIVE, to_still);
	for (int i = 0; i < ways; i++) {
		if ((way[i].peer == still) != to_still)
			continue;
		if (way[i].in != way[i].expected)
			__atomic_fetch_add(&meeting->wrong, 1, __ATOMIC_RELAXED);
		way[i].request[CLOSE] = started(ucp_ep_close_nbx(way[i].ep, &flush), "close");
	}
	finish(CLOSE, to_still);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns its seconds. */
static double run_round(int round)
{
	double begin, seconds;

	if (me == still)
		raise(SIGSTOP);
	if (me == 0 && still > 0)
		waitpid(pid[still], NULL, WUNTRACED);
	if (me != still && still > 0)
		meet_living();
	begin = now();
	connect_all(round);
	finish_endpoints(0);
	if (me != still && still > 0)
		meet_living();
	seconds = now() - begin;
	if (me == 0 && still > 0)
		kill(pid[still], SIGCONT);
	finish_endpoints(1);
	meet_all();
	return still > 0 ? seconds : now() - begin;
}

static double storm(void)
{
	double seconds = 0;

	alarm(LONGEST_S);
	open_workers();
	meet_all();
	for (int round = 0; round < rounds; round++)
		seconds += run_round(round);
	for (int i = 0; i < workers; i++)
		ucp_worker_destroy(worker[i]);
	ucp_cleanup(context);
	return seconds;
}

/* Process 0 makes the others while it has no other thread. */
static void become_many(void)
{
	for (int i = processes - 1; i > 0; i--) {
		pid[i] = fork();
		if (pid[i] == 0) {
			me = i;
			return;
		}
	}
}

int main(int argc, char **argv)
{
	int status, failed = 0;
	double seconds;

	if (argc < 4)
		return 2;
	processes = atoi(argv[1]);
	workers = atoi(argv[2]);
	rounds = atoi(argv[3]);
	if (processes < 2 || processes > PROCESSES_MAX || workers > WORKERS_MAX)
		return 2;
	if (argc > 4)
		still = processes - 1;
	meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (meeting == MAP_FAILED)
		return 1;
	become_many();
	seconds = storm();
	if (me != 0)
		return 0;
	while (wait(&status) > 0)
		failed |= status;
	if (failed != 0 || meeting->wrong != 0)
		printf("failed: %u wrong messages, status %d\n", meeting->wrong, failed);
	else
		printf("ok %d %.2f\n", processes * (processes - 1) * workers * workers * rounds,
		       seconds);
	return failed != 0 || meeting->wrong != 0;
}
