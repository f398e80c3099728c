/* send.c: MADs of the program on their way out, and back to it if nobody answers.
 * In:    buffers of the program; ends of sends    Out: sends of the MAD layer; packets to read
 * Runs:  the program's threads; the MAD layer's queue    Locks: umad_file.lock
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "umad/umad_priv.h"

/* ---- ways ------------------------------------------------------------------------------------ */

/* Gives up a hold; the handle to destroy, without a lock: its maker may wait. NULL: none. */
static struct umad_ah *umad_ah_put(struct umad_ah *way)
{
	return way != NULL && --way->refs == 0 ? way : NULL;
}

static void umad_ah_free(struct umad_ah *way)
{
	if (way == NULL)
		return;
	ib_destroy_ah(way->ah);
	free(way);
}

static struct umad_ah *umad_ah_find(struct umad_file *f, const struct ib_ah_attr *attr)
	REQUIRES(f->lock)
{
	if (f->way == NULL || !umad_address_same(&f->way->attr, attr))
		return NULL;
	f->way->refs++;
	return f->way;
}

static int umad_ah_make(struct umad_file *f, struct ib_ah_attr *attr, struct umad_ah **out)
{
	struct umad_ah *way = malloc(sizeof(*way)), *old;

	if (way == NULL)
		return -ENOMEM;
	*way = (struct umad_ah){ .ah = ib_create_ah(f->pd, attr), .attr = *attr, .refs = 2 };
	if (IS_ERR(way->ah)) {
		int err = (int)PTR_ERR(way->ah);

		free(way);
		return err;
	}
	lock_acquire(&f->lock);
	old = umad_ah_put(f->way);
	f->way = way;
	lock_release(&f->lock);
	umad_ah_free(old);
	*out = way;
	return 0;
}

static int umad_ah_get(struct umad_file *f, const struct ib_user_mad_hdr *hdr, struct umad_ah **out)
{
	struct ib_ah_attr attr = umad_address_of(hdr, f->port_num);
	struct umad_ah *way;

	lock_acquire(&f->lock);
	way = umad_ah_find(f, &attr);
	lock_release(&f->lock);
	if (way == NULL)
		return umad_ah_make(f, &attr, out);
	*out = way;
	return 0;
}

void umad_ah_forget(struct umad_file *f)
{
	struct umad_ah *old;

	lock_acquire(&f->lock);
	old = umad_ah_put(f->way);
	f->way = NULL;
	lock_release(&f->lock);
	umad_ah_free(old);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* A request without an answer goes back to the program. */
static void umad_give_back(struct umad_file *f, struct umad_packet *p) REQUIRES(f->lock)
{
	p->recv = NULL;
	p->hdr.status = ETIMEDOUT;
	p->hdr.length = sizeof(p->hdr) + sizeof(p->mad);
	umad_queue(f, p);
	umad_queue_tell(f);
}

void umad_send_done(struct ib_mad_agent *mad, struct ib_mad_send_wc *wc)
{
	struct umad_packet *p = wc->send_buf->context[0];
	struct umad_file *f = p->file;
	struct umad_ah *way;

	lock_acquire(&f->lock);
	list_remove(&p->node);
	way = umad_ah_put(p->way);
	if (wc->status == IB_WC_RESP_TIMEOUT_ERR) {
		umad_give_back(f, p);
		p = NULL;
	}
	lock_release(&f->lock);
	umad_ah_free(way);
	ib_free_send_mad(wc->send_buf);
	free(p);
}

/* ---- the buffer ------------------------------------------------------------------------------ */

/* What the program says of its message. */
struct umad_message {
	const struct ib_user_mad_hdr *hdr;
	const struct ib_rmpp_mad *mad;
	size_t bytes; /* of `mad` */
	bool rmpp;    /* the midlayer segments it */
	bool raw;     /* one packet of RMPP that the program makes itself */
} OWNED_BY(the caller);

static bool umad_is_active(const struct ib_rmpp_mad *mad)
{
	return ib_is_mad_class_rmpp(mad->mad_hdr.mgmt_class) &&
	       (ib_get_rmpp_flags(&mad->rmpp_hdr) & IB_MGMT_RMPP_FLAG_ACTIVE) != 0;
}

/* The header in front of what a segment repeats; all of the MAD where nothing is segmented. */
static struct ib_mad_send_buf *umad_message_alloc(struct ib_mad_agent *agent,
						  const struct umad_message *m)
{
	int hdr_len = ib_get_mad_data_offset(m->mad->mad_hdr.mgmt_class);

	if (m->bytes > INT32_MAX)
		return ERR_PTR(-EINVAL);
	return ib_create_send_mad(agent, be32toh(m->hdr->qpn), m->hdr->pkey_index, m->rmpp, hdr_len,
				  (int)m->bytes - hdr_len, 0);
}

static int umad_number(u32 n)
{
	return n > INT32_MAX ? INT32_MAX : (int)n;
}

/* Copies the message. RMPP's header is the midlayer's where it segments. */
static void umad_message_fill(struct ib_mad_send_buf *buf, const struct umad_message *m)
{
	struct ib_rmpp_mad *to = buf->mad;
	struct ib_rmpp_hdr rmpp = to->rmpp_hdr;

	memcpy(to, m->mad, m->bytes);
	if (m->rmpp) {
		to->rmpp_hdr = rmpp;
		to->rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	}
	if (!ib_response_mad(buf->mad))
		to->mad_hdr.tid = htobe64((u64)buf->mad_agent->hi_tid << 32 |
					  (be64toh(to->mad_hdr.tid) & UINT32_MAX));
	buf->timeout_ms = umad_number(m->hdr->timeout_ms);
	buf->retries = umad_number(m->hdr->retries);
}

/* ---- posting --------------------------------------------------------------------------------- */

/* Both go to one destination. */
static bool umad_same_peer(const struct ib_user_mad_hdr *a, const struct ib_user_mad_hdr *b)
{
	if ((a->grh_present != 0) != (b->grh_present != 0))
		return false;
	return a->grh_present != 0 ? memcmp(a->gid, b->gid, sizeof(a->gid)) == 0 : a->lid == b->lid;
}

/* The transaction is already on its way: no answer could be told from the other's. Of responses the
 * destination tells. */
static bool umad_is_double(struct umad_file *f, const struct umad_packet *p) REQUIRES(f->lock)
{
	list_for_each(q, &f->sends, struct umad_packet, node) {
		if (q->mad.tid != p->mad.tid || q->mad.mgmt_class != p->mad.mgmt_class ||
		    q->response != p->response)
			continue;
		if (!p->response || umad_same_peer(&p->hdr, &q->hdr))
			return true;
	}
	return false;
}

/* Without the lock, which the thread that receives takes. The agent is held; the packet may have
 * ended when this returns 0. */
static int umad_post(struct umad_file *f, struct umad_packet *p, bool raw)
{
	bool is_double;
	int err;

	lock_acquire(&f->lock);
	is_double = !raw && umad_is_double(f, p);
	if (!is_double)
		list_push_back(&f->sends, &p->node);
	lock_release(&f->lock);
	if (is_double)
		return -EINVAL;
	err = ib_post_send_mad(p->buf, NULL);
	if (err == 0)
		return 0;
	lock_acquire(&f->lock);
	list_remove(&p->node);
	lock_release(&f->lock);
	return err;
}

/* Everything of *m has been checked but what the MAD layer checks. */
static int umad_send(struct umad_file *f, struct ib_mad_agent *agent, const struct umad_message *m)
{
	struct umad_packet *p = malloc(sizeof(*p));
	struct umad_ah *way = NULL;
	int err = p == NULL ? -ENOMEM : umad_ah_get(f, m->hdr, &way);

	if (err != 0)
		goto free_packet;
	*p = (struct umad_packet){ .file = f, .way = way, .hdr = *m->hdr };
	p->buf = umad_message_alloc(agent, m);
	err = IS_ERR(p->buf) ? (int)PTR_ERR(p->buf) : 0;
	if (err != 0)
		goto put_way;
	umad_message_fill(p->buf, m);
	memcpy(&p->mad, p->buf->mad, sizeof(p->mad));
	p->response = ib_response_mad(p->buf->mad);
	p->buf->ah = way->ah;
	p->buf->context[0] = p;
	err = umad_post(f, p, m->raw);
	if (err == 0)
		return 0;
	ib_free_send_mad(p->buf);
put_way:
	lock_acquire(&f->lock);
	way = umad_ah_put(way);
	lock_release(&f->lock);
	umad_ah_free(way);
free_packet:
	free(p);
	return err;
}

/* The agent, which stays until umad_agent_release. NULL and *err: there is none. */
static struct ib_mad_agent *umad_agent_hold(struct umad_file *f, u32 id, int *err)
{
	struct ib_mad_agent *mad = NULL;

	lock_acquire(&f->lock);
	*err = f->dead ? -EIO : -EINVAL;
	if (!f->dead && id < UMAD_AGENTS && f->agents[id].state == UMAD_AGENT_READY) {
		f->agents[id].users++;
		mad = f->agents[id].mad;
	}
	lock_release(&f->lock);
	return mad;
}

static void umad_agent_release(struct umad_file *f, u32 id)
{
	lock_acquire(&f->lock);
	if (--f->agents[id].users == 0)
		cond_wake(&f->calm);
	lock_release(&f->lock);
}

int umad_file_write(struct umad_file *f, const void *buf, size_t bytes)
{
	struct ib_user_mad_hdr hdr;
	struct umad_message m = { .hdr = &hdr };
	struct ib_mad_agent *agent;
	bool active;
	int err;

	if (bytes < sizeof(hdr) + IB_MGMT_RMPP_HDR)
		return -EINVAL;
	memcpy(&hdr, buf, sizeof(hdr));
	m.mad = (const void *)((const u8 *)buf + sizeof(hdr));
	m.bytes = bytes - sizeof(hdr);
	agent = umad_agent_hold(f, hdr.id, &err);
	if (agent == NULL)
		return err;
	active = umad_is_active(m.mad);
	m.rmpp = active && ib_mad_kernel_rmpp_agent(agent);
	m.raw = active && !m.rmpp;
	err = umad_send(f, agent, &m);
	umad_agent_release(f, hdr.id);
	return err;
}
