/* read.c: MADs that wait until the program reads them: those that agents have received, and
 * requests that nobody answered.
 * In:    messages from the MAD layer    Out: buffers of the program; the descriptor
 * Runs:  the MAD layer's queue; the program's threads    Locks: umad_file.lock
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "mad/mad.h"
#include "umad/umad_priv.h"

enum { UMAD_REST_MS = 100 };

/* ---- what has come --------------------------------------------------------------------------- */

static u32 umad_packet_mads(const struct umad_packet *p)
{
	u32 n = 0;

	if (p->recv == NULL)
		return 1;
	for (const struct list_head *l = p->recv->rmpp_list.next; l != &p->recv->rmpp_list;
	     l = l->next)
		n++;
	return n;
}

void umad_queue_tell(struct umad_file *f)
{
	bool readable = f->dead || !list_empty(&f->waiting);

	if (readable && !f->told)
		ready_fd_add(&f->ready_fd);
	else if (!readable && f->told)
		ready_fd_take(&f->ready_fd, 1);
	f->told = readable;
}

static void umad_packet_free(struct umad_packet *p)
{
	if (p->recv != NULL)
		ib_free_recv_mad(p->recv);
	free(p);
}

void umad_queue(struct umad_file *f, struct umad_packet *p)
{
	u32 mads = umad_packet_mads(p);

	if (f->dead || f->waiting_mads + mads > UMAD_WAITING) {
		umad_packet_free(p);
		return;
	}
	f->waiting_mads += mads;
	list_push_back(&f->waiting, &p->node);
}

void umad_queue_clear(struct umad_file *f)
{
	struct list_head *node;

	while ((node = list_pop_front(&f->waiting)) != NULL)
		umad_packet_free(list_entry(node, struct umad_packet, node));
	f->waiting_mads = 0;
}

static void umad_on_tell(struct work *w)
{
	struct umad_file *f = container_of(w, struct umad_agent, tell)->file;

	lock_acquire(&f->lock);
	umad_queue_tell(f);
	lock_release(&f->lock);
}

/* The program is woken once for all that have come together: behind them, on the queue. */
static void umad_tell_soon(struct umad_agent *agent, const struct ib_mad_agent *mad)
{
	if (agent->tell.queue == NULL)
		work_init(&agent->tell, mad_agent_queue(mad), umad_on_tell);
	work_push(&agent->tell);
}

void umad_tell_end(struct umad_agent *agent)
{
	if (agent->tell.queue == NULL)
		return;
	work_cancel_wait(&agent->tell);
	umad_on_tell(&agent->tell);
	agent->tell = (struct work){ .queue = NULL };
}

void umad_received(struct ib_mad_agent *mad, struct ib_mad_recv_wc *recv)
{
	struct umad_agent *agent = mad->context;
	struct umad_file *f = agent->file;
	struct umad_packet *p = malloc(sizeof(*p));
	bool told;

	if (p == NULL) { /* as if it had been lost on the way */
		ib_free_recv_mad(recv);
		return;
	}
	p->recv = recv;
	umad_address_fill(&p->hdr, mad, recv);
	p->hdr.id = (u32)(agent - f->agents);
	lock_acquire(&f->lock);
	umad_queue(f, p);
	told = f->told;
	lock_release(&f->lock);
	if (!told)
		umad_tell_soon(agent, mad);
}

/* ---- for the program ------------------------------------------------------------------------- */

struct umad_cursor {
	u8 *to;
	size_t room;
} OWNED_BY(the caller);

static void umad_copy(struct umad_cursor *c, const void *from, size_t bytes)
{
	size_t n = MIN(bytes, c->room);

	memcpy(c->to, from, n);
	c->to += n;
	c->room -= n;
}

/* The first segment whole, of all others the data. */
static void umad_copy_message(struct umad_cursor *c, const struct ib_mad_recv_wc *recv)
{
	size_t offset = (size_t)ib_get_mad_data_offset(recv->recv_buf.mad->mad_hdr.mgmt_class);
	size_t left = (size_t)recv->mad_len, n = MIN(left, IB_MGMT_MAD_SIZE);

	umad_copy(c, recv->recv_buf.mad, n);
	left -= n;
	list_for_each(buf, &recv->rmpp_list, struct ib_mad_recv_buf, list) {
		if (buf == &recv->recv_buf)
			continue;
		n = MIN(left, IB_MGMT_MAD_SIZE - offset);
		umad_copy(c, (const u8 *)buf->mad + offset, n);
		left -= n;
	}
}

/* Takes the oldest packet. NULL: none waits. */
static struct umad_packet *umad_take(struct umad_file *f) REQUIRES(f->lock)
{
	struct list_head *node = list_pop_front(&f->waiting);
	struct umad_packet *p;

	if (node == NULL)
		return NULL;
	p = list_entry(node, struct umad_packet, node);
	f->waiting_mads -= umad_packet_mads(p);
	if (list_empty(&f->waiting))
		umad_queue_tell(f);
	return p;
}

/* Copies as much as fits; whether all did. */
static bool umad_fill(const struct umad_packet *p, void *buf, size_t bytes)
{
	struct umad_cursor c = { .to = buf, .room = bytes };

	umad_copy(&c, &p->hdr, sizeof(p->hdr));
	if (p->recv == NULL)
		umad_copy(&c, &p->mad, sizeof(p->mad));
	else if (p->hdr.length <= bytes)
		umad_copy_message(&c, p->recv);
	else
		umad_copy(&c, p->recv->recv_buf.mad, MIN(IB_MGMT_MAD_SIZE, p->recv->mad_len));
	return p->hdr.length <= bytes;
}

/* The first packet stays where it is unless it fits: no other thread takes the next before it. */
static ssize_t umad_read_first(struct umad_file *f, void *buf, size_t bytes,
			       struct umad_packet **out) REQUIRES(f->lock)
{
	struct umad_packet *p;

	if (f->dead)
		return -EIO;
	if (list_empty(&f->waiting))
		return -EAGAIN;
	p = list_first(&f->waiting, struct umad_packet, node);
	if (p->hdr.length > bytes) {
		(void)umad_fill(p, buf, bytes);
		return -ENOSPC;
	}
	*out = umad_take(f);
	return 0;
}

ssize_t umad_file_read(struct umad_file *f, void *buf, size_t bytes)
{
	struct umad_packet *p = NULL;
	ssize_t result;

	if (bytes < sizeof(struct ib_user_mad_hdr))
		return -EINVAL;
	lock_acquire(&f->lock);
	result = umad_read_first(f, buf, bytes, &p);
	lock_release(&f->lock);
	if (p == NULL)
		return result;
	(void)umad_fill(p, buf, bytes);
	result = (ssize_t)p->hdr.length;
	umad_packet_free(p);
	return result;
}

static bool umad_is_readable(struct umad_file *f)
{
	bool readable;

	lock_acquire(&f->lock);
	readable = f->dead || !list_empty(&f->waiting);
	lock_release(&f->lock);
	return readable;
}

/* A poll of the descriptor, whatever its number stands for by now. */
int umad_file_wait(struct umad_file *f, int timeout_ms)
{
	u64 deadline = clock_now_ns() + (u64)MAX(timeout_ms, 0) * NS_PER_MS;
	struct pollfd p = { .fd = f->ready_fd.twin >= 0 ? f->ready_fd.twin : f->ready_fd.fd,
			    .events = POLLIN };

	while (!umad_is_readable(f)) {
		u64 now = clock_now_ns();
		int left = timeout_ms < 0 ? -1 : (int)((MAX(deadline, now) - now + NS_PER_MS - 1) /
						       NS_PER_MS);

		if (left == 0)
			return -ETIMEDOUT;
		if (cancellable_poll(&p, 1, left) < 0)
			return -errno;
	}
	return 0;
}

void umad_file_rest(struct umad_file *f)
{
	bool again;

	lock_acquire(&f->lock);
	again = f->told_dead;
	f->told_dead = true;
	lock_release(&f->lock);
	if (again)
		(void)cancellable_poll(NULL, 0, UMAD_REST_MS);
}
