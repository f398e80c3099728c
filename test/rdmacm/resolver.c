/* resolver.c: asks librdmacm for the way to addresses, and says what it hears; resolve_test.py
 * judges.
 *
 * usage: rdmacm_resolver resolve DESTINATION TIMEOUT_MS
 *              "EVENT STATUS MILLISECONDS" or "error ERRNO"
 *        rdmacm_resolver bind ADDRESS
 *              "error ERRNO", 0 included
 *        rdmacm_resolver scarce DESTINATION
 *              the same as resolve, for each number of descriptors that it may still open
 *        rdmacm_resolver watch ADDRESS
 *              binds to it; a line per event, until it is killed
 *        rdmacm_resolver scopes ADDRESS
 *              connects to a listener of its own: the scopes of the client's address, the accepted
 *              id's own and its peer's; or "error ERRNO"
 * An address may have a scope: fe80::1%eth0.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

enum { EVENT_MS = 20000, SCARCE = 48 };

static struct rdma_event_channel *channel;

static struct addrinfo *address_of(const char *text)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;

	if (getaddrinfo(text, "7777", &hints, &found) != 0) {
		fprintf(stderr, "resolver: no address: %s\n", text);
		exit(2);
	}
	return found;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Says the next event. */
static void say_event(long begun)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&p, 1, EVENT_MS) != 1) {
		printf("nothing 0 %ld\n", now_ms() - begun);
		return;
	}
	if (rdma_get_cm_event(channel, &event) != 0) {
		printf("error %d\n", errno);
		return;
	}
	/* -1: librdmacm's own error is in errno */
	printf("%s %d %ld\n", rdma_event_str(event->event),
	       event->status == -1 ? -errno : event->status, now_ms() - begun);
	rdma_ack_cm_event(event);
}

static void resolve(const char *to, int timeout_ms)
{
	struct addrinfo *dst = address_of(to);
	struct rdma_cm_id *id;
	long begun = now_ms();

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
		printf("error %d\n", errno);
		freeaddrinfo(dst);
		return;
	}
	if (rdma_resolve_addr(id, NULL, dst->ai_addr, timeout_ms) != 0)
		printf("error %d\n", errno);
	else
		say_event(begun);
	rdma_destroy_id(id);
	freeaddrinfo(dst);
}

static int bind_to(const char *to, struct rdma_cm_id **id)
{
	struct addrinfo *addr = address_of(to);
	int err = 0;

	if (rdma_create_id(channel, id, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(*id, addr->ai_addr) != 0)
		err = errno;
	freeaddrinfo(addr);
	return err;
}

/* The lowest descriptor that is free: all below stay open. */
static rlim_t lowest_free(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	close(fd);
	return (rlim_t)fd;
}

/* Each in a process that begins anew. */
static void scarce_one(const char *to, rlim_t more)
{
	struct rlimit limit;
	pid_t child = fork();

	if (child != 0) {
		waitpid(child, NULL, 0);
		return;
	}
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = lowest_free() + more;
	setrlimit(RLIMIT_NOFILE, &limit);
	channel = rdma_create_event_channel();
	if (channel == NULL)
		printf("error %d\n", errno);
	else
		resolve(to, 2000);
	exit(0);
}

static void scarce(const char *to)
{
	for (rlim_t more = 0; more <= SCARCE; more++)
		scarce_one(to, more);
}

static int watch(const char *to)
{
	struct rdma_cm_id *id;
	int err = bind_to(to, &id);

	printf("bound %d\n", err);
	while (err == 0)
		say_event(now_ms());
	return 1;
}

static struct rdma_cm_event *await(enum rdma_cm_event_type type)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event = NULL;

	if (poll(&p, 1, EVENT_MS) == 1 && rdma_get_cm_event(channel, &event) == 0 &&
	    event->event == type)
		return event;
	fprintf(stderr, "resolver: %s instead of %s\n",
		event != NULL ? rdma_event_str(event->event) : "nothing", rdma_event_str(type));
	exit(3);
}

static unsigned scope_of(const struct sockaddr *addr)
{
	struct sockaddr_in6 sin6;

	memcpy(&sin6, addr, sizeof(sin6));
	return sin6.sin6_family == AF_INET6 ? sin6.sin6_scope_id : 0;
}

static int scopes_connect(struct rdma_cm_id *id, struct sockaddr *to)
{
	struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct rdma_conn_param param = { .retry_count = 7 };

	if (rdma_resolve_addr(id, NULL, to, EVENT_MS) != 0)
		return -1;
	rdma_ack_cm_event(await(RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(id, EVENT_MS) != 0)
		return -1;
	rdma_ack_cm_event(await(RDMA_CM_EVENT_ROUTE_RESOLVED));
	return rdma_create_qp(id, NULL, &qp) != 0 ? -1 : rdma_connect(id, &param);
}

/* The listener has any address, so that no scope is known before the request comes. */
static void scopes(const char *to)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(7777) };
	struct addrinfo *dst = address_of(to);
	struct rdma_cm_id *listener, *client, *accepted;
	struct rdma_cm_event *event;

	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(listener, (struct sockaddr *)&any) != 0 ||
	    rdma_listen(listener, 1) != 0 ||
	    rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) != 0 ||
	    scopes_connect(client, dst->ai_addr) != 0) {
		printf("error %d\n", errno);
		exit(0);
	}
	event = await(RDMA_CM_EVENT_CONNECT_REQUEST);
	accepted = event->id;
	printf("%u %u %u\n", scope_of(rdma_get_local_addr(client)),
	       scope_of(rdma_get_local_addr(accepted)), scope_of(rdma_get_peer_addr(accepted)));
	rdma_ack_cm_event(event);
	rdma_destroy_id(accepted);
	rdma_destroy_qp(client);
	rdma_destroy_id(client);
	rdma_destroy_id(listener);
	freeaddrinfo(dst);
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id = NULL;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "scarce") == 0) {
		scarce(argv[2]);
		return 0;
	}
	channel = rdma_create_event_channel();
	if (argc < 3 || channel == NULL)
		return 2;
	if (strcmp(argv[1], "resolve") == 0 && argc == 4)
		resolve(argv[2], atoi(argv[3]));
	else if (strcmp(argv[1], "watch") == 0)
		return watch(argv[2]);
	else if (strcmp(argv[1], "scopes") == 0)
		scopes(argv[2]);
	else if (strcmp(argv[1], "bind") == 0)
		printf("error %d\n", bind_to(argv[2], &id));
	else
		return 2;
	if (id != NULL)
		rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return 0;
}
