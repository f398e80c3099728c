/* keeper.c: sockets in the queue of a socket pair.
 * In:    sockets of groups; the queue of a dead node     Out: the same, at the next node
 * Runs:  the daemon's only thread                     Locks: none
 */
#include "daemon/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/message.h"

enum {
	KEEPER_MAGIC = 0x61766b70,
	KEEPER_TABLE_ROW = NODE_GIDS, /* the item that carries the table */
	KEEPER_BUFFER = 1 << 20,
};

static int keeper_send(struct keeper *k, const struct keeper_item *item, int fd)
{
	struct keeper_item copy = *item;

	copy.magic = KEEPER_MAGIC;
	return message_send(k->in, &copy, sizeof(copy), &fd, 1);
}

static int keeper_send_table(struct keeper *k)
{
	struct keeper_item item = { .row = KEEPER_TABLE_ROW };

	return keeper_send(k, &item, k->table_fd);
}

/* Each process can receive its descriptor: sealed, lest one cuts it off under the node's map. */
static int keeper_make_table(struct keeper *k)
{
	int err;

	k->table_fd = memfd_create("anyverbs-udp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (k->table_fd < 0)
		return -errno;
	err = posix_fallocate(k->table_fd, 0, sizeof(*k->table));
	if (err != 0)
		return -err;
	if (fcntl(k->table_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	k->table = mmap(NULL, sizeof(*k->table), PROT_READ | PROT_WRITE, MAP_SHARED, k->table_fd,
			0);
	if (k->table == MAP_FAILED) {
		k->table = NULL;
		return -errno;
	}
	k->table->magic = KEEPER_MAGIC;
	return 0;
}

int keeper_open(struct keeper *k)
{
	int ends[2], size = KEEPER_BUFFER, err;

	*k = (struct keeper){ .in = -1, .out = -1, .table_fd = -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	k->in = ends[0];
	k->out = ends[1];
	(void)setsockopt(k->in, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	err = keeper_make_table(k);
	if (err == 0)
		err = keeper_send_table(k);
	if (err < 0)
		keeper_close(k);
	return err;
}

void keeper_close(struct keeper *k)
{
	if (k->table != NULL)
		munmap(k->table, sizeof(*k->table));
	if (k->table_fd >= 0)
		close(k->table_fd);
	if (k->in >= 0)
		close(k->in);
	if (k->out >= 0)
		close(k->out);
	*k = (struct keeper){ .in = -1, .out = -1, .table_fd = -1 };
}

int keeper_add(struct keeper *k, const struct keeper_item *item, int fd)
{
	int err = k->count >= KEEPER_MAX ? -ENOSPC : keeper_send(k, item, fd);

	if (err == 0)
		k->count++;
	return err == -EAGAIN || err == -ETOOMANYREFS ? -ENOSPC : err;
}

/* Receives the next item with its descriptor. -EAGAIN: no more; -EPROTO: it is invalid. */
static int keeper_next(int out, struct keeper_item *item, int *fd)
{
	struct message m;
	int err = message_receive(out, item, sizeof(*item), &m);

	if (err < 0)
		return err == -EMSGSIZE ? -EPROTO : err == -ECONNRESET ? -EAGAIN : err;
	if (m.size != sizeof(*item) || m.fd_count != 1 || item->magic != KEEPER_MAGIC) {
		message_close(&m);
		return -EPROTO;
	}
	*fd = message_take_fd(&m, 0);
	return 0;
}

void keeper_clear(struct keeper *k)
{
	struct keeper_item item;
	int fd, err;

	do {
		err = keeper_next(k->out, &item, &fd);
		if (err == 0)
			close(fd);
	} while (err == 0 || err == -EPROTO);
	k->count = 0;
	(void)keeper_send_table(k);
}

/* ---- the queue of a dead node ---- */

static bool keeper_read_table(int fd, struct keeper_table *t)
{
	/* by pread: another process could truncate its file under a mapping */
	return pread(fd, t, sizeof(*t), 0) == (ssize_t)sizeof(*t) && t->magic == KEEPER_MAGIC;
}

int keeper_receive(int out, struct keeper_found *f)
{
	struct keeper_item item;
	bool table = false;
	int fd, err = 0;

	f->count = 0;
	for (int i = 0; i <= KEEPER_MAX && (err = keeper_next(out, &item, &fd)) == 0; i++) {
		if (item.row == KEEPER_TABLE_ROW || f->count == KEEPER_MAX) {
			table |= item.row == KEEPER_TABLE_ROW && keeper_read_table(fd, &f->table);
			close(fd);
			continue;
		}
		f->items[f->count] = item;
		f->fds[f->count++] = fd;
	}
	if (table && f->count > 0 && (err == 0 || err == -EAGAIN))
		return 0;
	keeper_discard(f);
	return -ENODATA;
}

void keeper_discard(struct keeper_found *f)
{
	for (u32 i = 0; i < f->count; i++)
		if (f->fds[i] >= 0)
			close(f->fds[i]);
	f->count = 0;
}
