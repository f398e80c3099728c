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

int main(int argc, char **argv)
{
	struct node_self self = { .board_fd = memfd_create("board", MFD_CLOEXEC),
				  .bell_fd = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC) } };
	struct node *n;
	u32 slot = 0;
	s32 pid = 0;
	int fd, err = node_attach(&self, &n);

	if (err == 0)
		err = node_slot_take(n, &slot);
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
