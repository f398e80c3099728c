/* attach.c: a program that attaches to the node, takes a slot, and does as told: a stand-in for a
 * verbs program.
 * usage: node_attach [SECONDS]      prints "SLOT PROCESS PID-OF-THE-NODE", then stays that long
 * In:    an argument               Out: a line, or why not; exit code 0 or 1
 * Runs:  one thread                Locks: none
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/client_priv.h"
#include "path/shm/board.h"

/* One queue pair and one counter, for `anyverbs status`. */
static void attach_show(struct board *b, u32 slot)
{
	b->counters[COUNT_RX_PACKETS] = 12345;
	b->slots[0] = slot;
	b->slot_count = 1;
	b->qps[1000] = (struct board_qp){ .word = board_qp_word(IBV_QPS_RTS, IBV_QPT_RC, 0),
					  .qpn = slot << NODE_INDEX_BITS | 1000,
					  .peer_qpn = 77,
					  .sent = 3,
					  .sent_bytes = 300,
					  .received = 4,
					  .received_bytes = 400,
					  .errors = 5 };
}

int main(int argc, char **argv)
{
	struct node_self self = { .bell_fd = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC) } };
	static struct node *n; /* ends without node_detach, as most programs do */
	u32 slot = 0;
	s32 pid = 0;
	int fd, err = 0;
	struct board *board = board_create(&self.board_fd, &err);

	if (board != NULL)
		err = node_attach(&self, &n);
	if (err == 0)
		err = node_slot_take(n, &slot);
	if (err == 0)
		attach_show(board, slot);
	if (err < 0) {
		fprintf(stderr, "attach: %s\n", strerror(-err));
		return 1;
	}
	fd = connection_open(getenv("ANYVERBS_NODE") == NULL ? "default" : getenv("ANYVERBS_NODE"),
			     false);
	if (fd >= 0)
		address_peer_is_mine(fd, &pid);
	printf("%u %llu %d\n", slot, (unsigned long long)node_process(n), (int)pid);
	fflush(stdout);
	if (argc > 1)
		usleep((useconds_t)(atof(argv[1]) * 1e6));
	return 0;
}
