/* fdstore.c: sockets in the queue of a socket pair.
 * In:    sockets of groups; the queue of a dead node     Out: the same, at the next node
 * Runs:  the daemon's only thread                     Locks: none
 */
#include "daemon/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/message.h"

enum {
	FDSTORE_MAGIC = 0x61766b70,
	FDSTORE_TABLE_ROW = NODE_GIDS, /* the item that carries the table */
	FDSTORE_BUFFER = 1 << 20,
};

static int fdstore_send(struct fdstore *k, const struct fdstore_item *item, int fd)
{
	struct fdstore_item copy = *item;

	copy.magic = FDSTORE_MAGIC;
	return message_send(k->in, &copy, sizeof(copy), &fd, 1);
}

static int fdstore_send_table(struct fdstore *k)
{
	struct fdstore_item item = { .row = FDSTORE_TABLE_ROW };

	return fdstore_send(k, &item, k->table_fd);
}

/* Each process can receive its descriptor: sealed, lest one cuts it off under the node's map. */
static int fdstore_make_table(struct fdstore *k)
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
	k->table->magic = FDSTORE_MAGIC;
	return 0;
}

int fdstore_open(struct fdstore *k)
{
	int ends[2], size = FDSTORE_BUFFER, err;

	*k = (struct fdstore){ .in = -1, .out = -1, .table_fd = -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	k->in = ends[0];
	k->out = ends[1];
	(void)setsockopt(k->in, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	err = fdstore_make_table(k);
	if (err == 0)
		err = fdstore_send_table(k);
	if (err < 0)
		fdstore_close(k);
	return err;
}

void fdstore_close(struct fdstore *k)
{
	if (k->table != NULL)
		munmap(k->table, sizeof(*k->table));
	if (k->table_fd >= 0)
		close(k->table_fd);
	if (k->in >= 0)
		close(k->in);
	if (k->out >= 0)
		close(k->out);
	*k = (struct fdstore){ .in = -1, .out = -1, .table_fd = -1 };
}

int fdstore_add(struct fdstore *k, const struct fdstore_item *item, int fd)
{
	int err = k->count >= FDSTORE_MAX ? -ENOSPC : fdstore_send(k, item, fd);

	if (err == 0)
		k->count++;
	return err == -EAGAIN || err == -ETOOMANYREFS ? -ENOSPC : err;
}

/* Receives the next item with its descriptor. -EAGAIN: no more; -EPROTO: it is invalid. */
static int fdstore_next(int out, struct fdstore_item *item, int *fd)
{
	struct message m;
	int err = message_receive(out, item, sizeof(*item), &m);

	if (err < 0)
		return err == -EMSGSIZE ? -EPROTO : err == -ECONNRESET ? -EAGAIN : err;
	if (m.size != sizeof(*item) || m.fd_count != 1 || item->magic != FDSTORE_MAGIC) {
		message_close(&m);
		return -EPROTO;
	}
	*fd = message_take_fd(&m, 0);
	return 0;
}

void fdstore_clear(struct fdstore *k)
{
	struct fdstore_item item;
	int fd, err;

	do {
		err = fdstore_next(k->out, &item, &fd);
		if (err == 0)
			close(fd);
	} while (err == 0 || err == -EPROTO);
	k->count = 0;
	(void)fdstore_send_table(k);
}

/* ---- the queue of a dead node ---- */

static bool fdstore_read_table(int fd, struct fdstore_table *t)
{
	/* by pread: another process could truncate its file under a mapping */
	return pread(fd, t, sizeof(*t), 0) == (ssize_t)sizeof(*t) && t->magic == FDSTORE_MAGIC;
}

int fdstore_receive(int out, struct fdstore_found *f)
{
	struct fdstore_item item;
	bool table = false;
	int fd, err = 0;

	f->count = 0;
	for (int i = 0; i <= FDSTORE_MAX && (err = fdstore_next(out, &item, &fd)) == 0; i++) {
		if (item.row == FDSTORE_TABLE_ROW || f->count == FDSTORE_MAX) {
			table |= item.row == FDSTORE_TABLE_ROW && fdstore_read_table(fd, &f->table);
			close(fd);
			continue;
		}
		f->items[f->count] = item;
		f->fds[f->count++] = fd;
	}
	if (table && f->count > 0 && (err == 0 || err == -EAGAIN))
		return 0;
	fdstore_discard(f);
	return -ENODATA;
}

void fdstore_discard(struct fdstore_found *f)
{
	for (u32 i = 0; i < f->count; i++)
		if (f->fds[i] >= 0)
			close(f->fds[i]);
	f->count = 0;
}
