/* fdstore_fuzz.c: what a process may hand to the node that takes over: the queue of kept sockets.
 *
 * The input is the table of slots and a list of items, each with a descriptor: sockets of two
 * addresses with the right options, or anything else. Afterwards a group is either whole and in
 * order or not there, the node works on with it, and no descriptor is left.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "input.h"
#include "daemon/udp.h"
#include "node/message.h"
#include "node/udp_socket.h"

enum { ADDRESSES = 2, EACH = 3, ITEMS = 24, MAGIC = 0x61766b70 };

/* Bits of an item's first byte. */
enum { RIGHT_MAGIC = 1, TABLE = 2, RIGHT_ITEM = 4, TWO = 8, SHORT = 16 };

static struct fuzz {
	u8 gid[ADDRESSES][16];
	int fds[ADDRESSES * EACH];
	struct loop loop;
	struct udp_addresses udp;
} f;

static void fuzz_open_sockets(void)
{
	int one = 1;

	for (int i = 0; i < ADDRESSES * EACH; i++) {
		u8 *gid = f.gid[i / EACH];

		memcpy(gid, (u8[16]){ [10] = 0xff, [11] = 0xff, 127, 78 }, 16);
		gid[13] = (u8)(gid[13] + i / EACH);
		gid[14] = (u8)(getpid() >> 8);
		gid[15] = (u8)getpid();
		f.fds[i] = node_udp_socket_open(gid);
		fuzz_need(f.fds[i] >= 0 &&
				  setsockopt(f.fds[i], SOL_SOCKET, SO_REUSEPORT, &one,
					     sizeof(one)) == 0 &&
				  node_udp_socket_bind(f.fds[i], gid, 1) == 0,
			  "no socket");
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	handles_open();
	fuzz_open_sockets();
	return loop_init(&f.loop);
}

static int fuzz_table(struct input *in)
{
	static struct fdstore_table t;
	int fd = memfd_create("fuzz-table", MFD_CLOEXEC);

	memset(&t, 0, sizeof(t));
	t.magic = MAGIC;
	input_bytes(in, t.slot_of[0], 8);
	input_bytes(in, t.slot_of[1], 8);
	fuzz_need(fd >= 0 && write(fd, &t, sizeof(t)) == sizeof(t), "no table");
	return fd;
}

/* Member `k` of its group, as it should be; or anything. */
static void fuzz_item(int to, u8 what, int table, struct input *in)
{
	struct fdstore_item item = { .ifindex = 1 };
	u8 k = input_u8(in), fd_kind = input_u8(in);
	int fds[2];

	memcpy(item.gid, f.gid[k / EACH % ADDRESSES], 16);
	item.row = k / EACH % ADDRESSES;
	item.index = k % EACH;
	fds[0] = handle_make(what & RIGHT_ITEM ? (u8)(HANDLE_KINDS + k % (ADDRESSES * EACH))
					       : fd_kind,
			     f.fds, ADDRESSES * EACH);
	if (!(what & RIGHT_ITEM))
		input_bytes(in, &item, sizeof(item));
	if (what & RIGHT_MAGIC)
		item.magic = MAGIC;
	if (what & TABLE) {
		item.row = NODE_GIDS;
		dup2(table, fds[0]);
	}
	fds[1] = dup(fds[0]);
	message_send(to, &item, sizeof(item) - (what & SHORT ? 4 : 0), fds, what & TWO ? 2 : 1);
	close(fds[0]);
	close(fds[1]);
}

static bool fuzz_in_use(void *arg, u32 slot)
{
	return slot % 2 == 0;
}

static void fuzz_check_groups(void)
{
	for (int i = 0; i < NODE_GIDS; i++) {
		const struct reuseport_group *g = &f.udp.groups[i];

		fuzz_need(g->count <= EACH * 2, "members that were not there");
		for (u32 k = 0; k < g->count; k++)
			fuzz_need(fcntl(g->members[k].fd, F_GETFD) >= 0, "a member that is closed");
	}
}

/* The node goes on with what it got: another address, and members for slots. */
static void fuzz_go_on(struct input *in)
{
	int err;

	daemon_udp_look_begin(&f.udp);
	for (int i = 0; i < ADDRESSES; i++)
		daemon_udp_want(&f.udp, f.gid[i], 1);
	daemon_udp_look_end(&f.udp);
	for (int i = 0; i < ADDRESSES; i++) {
		struct reuseport_group *g = daemon_udp_find(&f.udp, f.gid[i]);
		u32 slot = 1 + input_u8(in) % 8;

		if (g == NULL)
			continue;
		if (daemon_udp_member_of(&f.udp, g, slot, &err) != NULL)
			daemon_udp_release(&f.udp, slot);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };
	int lowest = handle_lowest(), ends[2], table = fuzz_table(&in);

	fuzz_need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
				  0 &&
			  daemon_udp_init(&f.udp, &f.loop) == 0,
		  "no node");
	for (int n = 0; n < ITEMS && in.left > 2; n++)
		fuzz_item(ends[0], input_u8(&in), table, &in);
	daemon_udp_adopt(&f.udp, ends[1], fuzz_in_use, NULL);
	fuzz_check_groups();
	fuzz_go_on(&in);
	daemon_udp_destroy(&f.udp);
	close(ends[0]);
	close(ends[1]);
	close(table);
	fuzz_need(handle_lowest() == lowest, "a descriptor is left open");
	return 0;
}
