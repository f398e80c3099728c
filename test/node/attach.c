/* attach.c: a program that attaches to the node, takes a slot, and does as told: a stand-in for a
 * verbs program.
 * usage: node_attach [SECONDS [GROUP...]]
 * Prints "SLOT PROCESS PID-OF-THE-NODE", then stays that long. With groups it listens: on its UDP
 * sockets and, for each group, on one per interface. It prints "SOURCE LENGTH" of each datagram,
 * SOURCE being "udp" or the group, and ends with the standard input.
 * In:    arguments                 Out: lines, or why not; exit code 0 or 1
 * Runs:  one thread                Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/client_priv.h"
#include "path/shm/board.h"

enum { ATTACH_SOURCES = 32 };

/* One queue pair and two counters, for `anyverbs status`. */
static void attach_show(struct board *b, u32 slot)
{
	b->counters[COUNT_RX_PACKETS] = 12345;
	b->hazards[0].done = 40;
	b->hazards[BOARD_HAZARDS - 1].done = 2;
	b->slots[0] = slot;
	b->slot_count = 1;
	b->qps[1000] = (struct board_qp){ .word = board_qp_word(IBV_QPS_RTS, IBV_QPT_RC, 0),
					  .qpn = slot << NODE_INDEX_BITS | 1000,
					  .peer_qpn = 77 };
	b->tallies[1000] = (struct board_tally){ .sent = 3,
						 .sent_bytes = 300,
						 .received = 4,
						 .received_bytes = 400,
						 .errors = 5 };
}

/* Where datagrams come from. */
struct attach_source {
	const char *name;
	int fd;
};

static int attach_listen_group(struct node *n, const char *name, struct attach_source *out, int max)
{
	struct node_config c;
	u32 joined[NODE_GIDS];
	u8 group[16];
	int count = 0;

	if (inet_pton(AF_INET6, name, group) != 1)
		return -1;
	if (node_device_get(n, 0, &c) < 0)
		return -1;
	for (int i = 1; i < NODE_GIDS && count < max; i++) {
		bool again = c.gids[i].ifindex == 0;

		for (int k = 0; k < count; k++)
			again |= joined[k] == c.gids[i].ifindex;
		if (again)
			continue;
		joined[count] = c.gids[i].ifindex;
		out[count].name = name;
		out[count].fd = node_mcast_socket(group, &c.gids[i]);
		if (out[count++].fd < 0)
			return -1;
	}
	return count;
}

static int attach_listen(struct node *n, u32 slot, char **groups, struct attach_source *out,
			 int max)
{
	struct node_socket sockets[NODE_GIDS];
	int got, count = node_udp_sockets(n, 0, slot, sockets, MIN(max, NODE_GIDS));

	for (int i = 0; i < count; i++)
		out[i] = (struct attach_source){ "udp", sockets[i].fd };
	for (; count >= 0 && *groups != NULL; groups++) {
		got = attach_listen_group(n, *groups, out + count, max - count);
		count = got < 0 ? -1 : count + got;
	}
	return count;
}

static void attach_receive(const struct attach_source *sources, int count)
{
	char packet[65536], byte;

	for (;;) {
		struct pollfd p[ATTACH_SOURCES + 1] = { { .fd = STDIN_FILENO, .events = POLLIN } };

		for (int i = 0; i < count; i++)
			p[i + 1] = (struct pollfd){ .fd = sources[i].fd, .events = POLLIN };
		poll(p, (nfds_t)count + 1, -1);
		for (int i = 0; i < count; i++) {
			ssize_t n = recv(sources[i].fd, packet, sizeof(packet), MSG_DONTWAIT);

			if (n >= 0)
				printf("%s %zd\n", sources[i].name, n);
		}
		fflush(stdout);
		if (p[0].revents != 0 && read(STDIN_FILENO, &byte, 1) <= 0)
			return;
	}
}

int main(int argc, char **argv)
{
	struct attach_source sources[ATTACH_SOURCES];
	struct node_self self = { .bell_fd = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC) } };
	static struct node *n; /* ends without node_detach, as most programs do */
	u32 slot = 0;
	s32 pid = 0;
	int fd, count = 0, err = 0;
	struct board *board = board_create(&self.board_fd, &err);

	if (board != NULL)
		err = node_attach(&self, &n);
	if (err == 0)
		err = node_slot_take(n, &slot);
	if (err == 0)
		attach_show(board, slot);
	if (err == 0 && argc > 2)
		count = attach_listen(n, slot, argv + 2, sources, ATTACH_SOURCES);
	err = count < 0 ? -EIO : err;
	if (err < 0) {
		fprintf(stderr, "attach: %s\n", strerror(-err));
		return 1;
	}
	fd = connection_open(getenv("ANYVERBS_NODE") == NULL ? "default" : getenv("ANYVERBS_NODE"),
			     place_scope_wanted(), false);
	if (fd >= 0)
		address_peer_is_mine(fd, &pid);
	printf("%u %llu %d\n", slot, (unsigned long long)node_process(n), (int)pid);
	fflush(stdout);
	if (argc > 2)
		attach_receive(sources, count);
	else if (argc > 1)
		usleep((useconds_t)(atof(argv[1]) * 1e6));
	return 0;
}
