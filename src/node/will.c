/* will.c: writes the wills of this process, and says what its dead peers' wills were.
 * In:    MADs for the case of its death    Out: a memory file for the node
 * Runs:  any thread; never blocks          Locks: will_store.lock, a leaf
 * Spec:  IBA vol 1, 12.9.8
 */
#include "node/will.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memfile.h"
#include "cm/message/message.h"

static int will_map(struct will_store *s) REQUIRES(s->lock)
{
	void *p = mmap(NULL, sizeof(*s->file), PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	/* a child would write the parent's will */
	if (madvise(p, sizeof(*s->file), MADV_DONTFORK) < 0) {
		munmap(p, sizeof(*s->file));
		return -errno;
	}
	s->file = p;
	s->file->magic = WILL_MAGIC;
	return 0;
}

/* Its pages take memory only when they are written. */
static int will_create(struct will_store *s) REQUIRES(s->lock)
{
	int err;

	s->fd = memfile_create("anyverbs-wills", sizeof(*s->file));
	if (s->fd < 0)
		return s->fd;
	err = fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0 ? -errno : will_map(s);
	if (err < 0)
		close(s->fd);
	return err;
}

static void will_write(struct will_slot *slot, const struct node_will *will)
{
	u32 next = slot->word == 1 ? 2 : 1;

	if (will != NULL)
		slot->half[next - 1] = *will;
	/* whoever reads after this process' death sees the half whole: no store moves behind it */
	__atomic_store_n(&slot->word, will != NULL ? next : 0, __ATOMIC_RELEASE);
}

static int will_set_locked(struct will_store *s, u32 index, const struct node_will *will)
	REQUIRES(s->lock)
{
	bool new = s->file == NULL;
	int err;

	if (index >= NODE_WILLS)
		return -ENOSPC;
	if (new && (will == NULL || s->failed))
		return 0;
	if (new) {
		err = will_create(s);
		s->failed = err < 0;
		if (err < 0) {
			log_warn("node", "if this process is killed its peers are not told: %s",
				 strerror(-err));
			return err;
		}
	}
	will_write(&s->file->slots[index], will);
	if (s->file->used <= index)
		__atomic_store_n(&s->file->used, index + 1, __ATOMIC_RELEASE);
	return new ? 1 : 0;
}

int will_set(struct will_store *s, u32 index, const struct node_will *will)
{
	int result;

	lock_acquire(&s->lock);
	result = will_set_locked(s, index, will);
	lock_release(&s->lock);
	return result;
}

bool will_next(struct will_store *s, u32 *index, struct node_will *out)
{
	const struct will_slot *slot = NULL;

	lock_acquire(&s->lock);
	while (slot == NULL && s->file != NULL && *index < s->file->used) {
		slot = &s->file->slots[(*index)++];
		if (slot->word == 0)
			slot = NULL;
	}
	if (slot != NULL)
		*out = slot->half[slot->word - 1];
	lock_release(&s->lock);
	return slot != NULL;
}

/* The message that ends the peer's side; false: the peer owes none, or the CM hears by itself that
 * nobody is there when it repeats its own. */
static bool will_peers_message(const struct node_connection *c, struct cm_msg *msg)
{
	switch (c->state) {
	case NODE_CONNECTION_REP_RCVD:
	case NODE_CONNECTION_MRA_REP_SENT:
		msg->attr = CM_REJ;
		msg->rej = (struct cm_rej_msg){ .local_id = c->remote_id,
						.remote_id = c->local_id,
						.about = CM_ABOUT_OTHER,
						.reason = CM_REASON_CONSUMER };
		return true;
	case NODE_CONNECTION_ESTABLISHED:
		msg->attr = CM_DREQ;
		msg->dreq = (struct cm_dreq_msg){ .local_id = c->remote_id,
						  .remote_id = c->local_id,
						  .remote_qpn = c->local_qpn };
		return true;
	case NODE_CONNECTION_DREQ_SENT:
		msg->attr = CM_DREP;
		msg->drep = (struct cm_pair_msg){ .local_id = c->remote_id,
						  .remote_id = c->local_id };
		return true;
	default:
		return false;
	}
}

bool node_will_of_peer(const struct node_will *own, struct node_will *out)
{
	struct cm_msg msg = { .tid = own->connection.remote_id };
	u8 mad[CM_MAD_BYTES];

	if (!will_peers_message(&own->connection, &msg))
		return false;
	*out = *own;
	memcpy(out->sgid, own->dgid, sizeof(out->sgid));
	memcpy(out->dgid, own->sgid, sizeof(out->dgid));
	out->slid = own->dlid;
	out->dlid = own->slid;
	msg_pack(&msg, mad);
	memcpy(out->mad, mad, sizeof(out->mad));
	return true;
}

int will_describe(struct will_store *s)
{
	int fd = -ENOENT;

	lock_acquire(&s->lock);
	if (s->file != NULL)
		fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
	lock_release(&s->lock);
	return fd == -1 ? -errno : fd;
}

u32 will_used(int fd)
{
	u32 head[2] = { 0, 0 };

	if (pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head) || head[0] != WILL_MAGIC)
		return 0;
	return MIN(head[1], (u32)NODE_WILLS);
}

void will_close(struct will_store *s)
{
	lock_acquire(&s->lock);
	if (s->file != NULL) {
		munmap(s->file, sizeof(*s->file));
		close(s->fd);
	}
	s->file = NULL;
	lock_release(&s->lock);
}

void will_drop_in_child(struct will_store *s) NO_THREAD_SAFETY
{
	lock_init(&s->lock);
	if (s->file != NULL)
		close(s->fd);
	s->file = NULL;
}
