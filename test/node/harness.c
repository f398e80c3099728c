/* harness.c: a node of its own for each test.
 * In:    the environment               Out: ANYVERBS_NODE, XDG_RUNTIME_DIR, ANYVERBS_IDLE_S
 * Runs:  the test's thread             Locks: none
 */
#include "harness.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "../late.h"

static char harness_folder[64];
static int harness_number;

int harness_setup(void **state)
{
	char name[NODE_NAME_MAX];

	snprintf(harness_folder, sizeof(harness_folder), "/tmp/anyverbs-test-XXXXXX");
	if (mkdtemp(harness_folder) == NULL)
		return -1;
	snprintf(name, sizeof(name), "test-%d-%d", (int)getpid(), harness_number++);
	setenv("XDG_RUNTIME_DIR", harness_folder, 1);
	setenv("ANYVERBS_NODE", name, 1);
	setenv("ANYVERBS_IDLE_S", "20", 1);
	unsetenv("ANYVERBS_REST_S");
	setenv("ANYVERBS_ADDR", "own", 1); /* whoever else is there */
	return 0;
}

static int harness_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

int harness_teardown(void **state)
{
	harness_kill_daemon();
	nftw(harness_folder, harness_remove, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}

struct node_self harness_self(int board_fd)
{
	return (struct node_self){
		.board_fd = board_fd,
		.bell_fd = { eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
			     eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) },
	};
}

static void harness_attach_as(struct harness *h, bool wire_only)
{
	h->self = harness_self(memfd_create("board", MFD_CLOEXEC));
	h->self.wire_only = wire_only;
	assert_int_equal(node_attach(&h->self, &h->node), 0);
}

void harness_attach(struct harness *h)
{
	harness_attach_as(h, false);
}

void harness_attach_by_wire(struct harness *h)
{
	harness_attach_as(h, true);
}

static void harness_close_self(struct harness *h)
{
	close(h->self.board_fd);
	close(h->self.bell_fd[0]);
	close(h->self.bell_fd[1]);
}

void harness_detach(struct harness *h)
{
	node_detach(h->node);
	harness_close_self(h);
}

void harness_drop(struct harness *h)
{
	node_drop_in_child(h->node);
	harness_close_self(h);
}

int harness_connect(void)
{
	char name[NODE_NAME_MAX];

	assert_int_equal(address_node_name(name), 0);
	return connection_open(name, place_scope_wanted(), false);
}

int harness_daemon(void)
{
	int fd = harness_connect();
	s32 pid = 0;

	if (fd < 0)
		return 0;
	assert_true(address_peer_is_mine(fd, &pid));
	close(fd);
	return pid;
}

/* Its descriptors are closed when it is a zombie, and not all at once. */
static bool harness_lives(int pid)
{
	char path[64], state = 'Z';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'Z';
	fclose(f);
	return state != 'Z' && state != 'X';
}

void harness_kill_daemon(void)
{
	int pid = harness_daemon();

	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	for (int i = 0; i < HARNESS_PATIENCE_MS && harness_lives(pid); i++)
		usleep(1000);
}

static void harness_ask(int fd, u16 type, void *reply, size_t size)
{
	struct proto_plain q = { .head = { .magic = PROTO_MAGIC,
					   .version = PROTO_VERSION,
					   .type = type } };
	struct message m;

	assert_int_equal(message_send(fd, &q, sizeof(q), NULL, 0), 0);
	assert_int_equal(message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
	assert_int_equal(message_receive(fd, reply, size, &m), 0);
	assert_int_equal(m.size, size);
}

struct proto_status_reply harness_status(void)
{
	struct proto_status_reply reply;
	struct proto_plain plain;
	int fd = harness_connect();

	assert_true(fd >= 0);
	harness_ask(fd, PROTO_TOOL, &plain, sizeof(plain));
	harness_ask(fd, PROTO_STATUS, &reply, sizeof(reply));
	close(fd);
	return reply;
}

void harness_print_addresses(void)
{
	struct proto_addresses_reply reply;
	struct proto_plain plain;
	char line[256];
	FILE *f = fopen("/proc/net/udp", "re");
	int fd = harness_connect();

	assert_true(fd >= 0 && f != NULL);
	harness_ask(fd, PROTO_TOOL, &plain, sizeof(plain));
	harness_ask(fd, PROTO_ADDRESSES, &reply, sizeof(reply));
	close(fd);
	for (u32 i = 0; i < reply.count; i++)
		fprintf(stderr, "address %u: state %u, error %d, %u sockets, %u slots\n", i,
			reply.addresses[i].state, reply.addresses[i].err,
			reply.addresses[i].sockets, reply.addresses[i].slots);
	while (fgets(line, sizeof(line), f) != NULL)
		fputs(line, stderr);
	fclose(f);
}

int harness_lowest_fd(void)
{
	int fd = dup(STDERR_FILENO);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

bool harness_readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, timeout_ms) == 1)
		return true;
	late("data", timeout_ms);
	return false;
}

struct node_event harness_wait_event(struct harness *h, enum node_event_type type)
{
	u64 deadline = clock_now_ns() + HARNESS_PATIENCE_NS;
	struct node_event ev;

	while (clock_now_ns() < deadline) {
		if (!harness_readable(node_event_fd(h->node), 100))
			continue;
		if (!node_event_next(h->node, &ev))
			continue;
		if (ev.type == type)
			return ev;
		if (ev.type == NODE_EVENT_PEER_NEW)
			harness_close_peer(&ev.peer);
	}
	late("event of the node", (int)(HARNESS_PATIENCE_NS / NS_PER_MS));
	fail_msg("event %d does not come", (int)type);
	return ev;
}

bool harness_same_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

void harness_close_peer(struct node_peer *peer)
{
	events_close_peer(peer);
}
