/* port.c: the ports of this process, and what arrives at them.
 * In:    MADs of any content, in any context    Out: judged copies, on the port's queue
 * Runs:  the path's receiver; the port's queue  Locks: mad_lock
 * Spec:  IBA vol 1, 13.4.2 (header), 13.5.3.3 (checks), 10.9.3 (P_Key), 10.2.5 (Q_Key)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_cache.h>

#include "base/fork.h"
#include "base/log.h"
#include "mad/mad_priv.h"

struct lock mad_lock;

static struct list_head mad_ports GUARDED_BY(mad_lock) = LIST_HEAD_INIT(mad_ports);
/* ---- counters -------------------------------------------------------------------------------- */

enum { MAD_ALL_COUNTERS = MAD_COUNTERS + MAD_CM_COUNTERS };

static u64 mad_counters[MAD_ALL_COUNTERS] ATOMIC_ONLY; /* until there is a place */
static u64 *mad_place ATOMIC_ONLY = mad_counters;

/* Pairs with the exchange in mad_count_at. */
static u64 *mad_counter(u32 index)
{
	return &__atomic_load_n(&mad_place, __ATOMIC_ACQUIRE)[index];
}

u64 mad_count(enum mad_counter c)
{
	return __atomic_load_n(mad_counter(c), __ATOMIC_RELAXED);
}

void mad_count_one(enum mad_counter c)
{
	__atomic_fetch_add(mad_counter(c), 1, __ATOMIC_RELAXED);
}

void mad_count_cm(u32 index)
{
	__atomic_fetch_add(mad_counter(MAD_COUNTERS + index), 1, __ATOMIC_RELAXED);
}

void mad_count_at(u64 *place)
{
	u64 *before = __atomic_exchange_n(&mad_place, place, __ATOMIC_ACQ_REL);

	for (u32 i = 0; before != place && i < MAD_ALL_COUNTERS; i++)
		__atomic_fetch_add(&place[i], __atomic_exchange_n(&before[i], 0, __ATOMIC_RELAXED),
				   __ATOMIC_RELAXED);
}

/* ---- ports ----------------------------------------------------------------------------------- */

struct mad_port *mad_port_find(const struct ib_device *device, u8 port_num, enum ib_qp_type type)
{
	list_for_each(p, &mad_ports, struct mad_port, node)
		if (p->cfg.device == device && p->cfg.port_num == port_num &&
		    p->cfg.qp_type == type)
			return p;
	return NULL;
}

void mad_port_put(struct mad_port *port)
{
	if (--port->refs == 0)
		free(port);
}

void mad_port_hold(struct mad_port *port)
{
	lock_acquire(&mad_lock);
	port->refs++;
	lock_release(&mad_lock);
}

void mad_port_release(struct mad_port *port)
{
	lock_acquire(&mad_lock);
	mad_port_put(port);
	lock_release(&mad_lock);
}

static struct mad_message *mad_port_take(struct mad_port *port)
{
	struct list_head *node;

	lock_acquire(&mad_lock);
	node = list_pop_front(&port->arrivals);
	if (node != NULL)
		port->arrival_count--;
	lock_release(&mad_lock);
	return node == NULL ? NULL : list_entry(node, struct mad_message, node);
}

static void mad_port_on_arrivals(struct work *w)
{
	struct mad_port *port = container_of(w, struct mad_port, receive_work);
	struct mad_message *m;

	for (int i = 0; i < MAD_BURST; i++) {
		m = mad_port_take(port);
		if (m == NULL)
			return;
		mad_receive(port, m);
	}
	work_push(w);
}

struct mad_port *mad_port_add(const struct mad_port_config *config, int *err)
{
	struct mad_port *port = calloc(1, sizeof(*port));

	if (port == NULL) {
		*err = -ENOMEM;
		return NULL;
	}
	port->cfg = *config;
	work_init(&port->receive_work, config->queue, mad_port_on_arrivals);
	lock_acquire(&mad_lock);
	port->refs = 1;
	list_init(&port->agents);
	list_init(&port->arrivals);
	rmpp_port_init(&port->rmpp);
	*err = mad_port_find(config->device, config->port_num, config->qp_type) ? -EEXIST : 0;
	if (*err == 0)
		list_push_back(&mad_ports, &port->node);
	lock_release(&mad_lock);
	if (*err == 0)
		return port;
	free(port);
	return NULL;
}

/* Every agent's outstanding sends. */
static void mad_port_flush(struct mad_port *port) REQUIRES(mad_lock)
{
	list_for_each(agent, &port->agents, struct mad_agent, node)
		list_for_each(send, &agent->sends, struct mad_send, node)
			mad_send_flush(send);
}

void mad_port_remove(struct mad_port *port)
{
	struct mad_message *m;

	lock_acquire(&mad_lock);
	list_remove(&port->node);
	port->gone = true;
	mad_port_flush(port);
	lock_release(&mad_lock);
	work_cancel_wait(&port->receive_work);
	while ((m = mad_port_take(port)) != NULL)
		free(m);
	mad_port_release(port);
}

/* What the parent's agents and messages were stays in the parent's memory. */
static void mad_drop_in_child(void) NO_THREAD_SAFETY
{
	list_for_each(port, &mad_ports, struct mad_port, node) {
		list_init(&port->agents);
		list_init(&port->arrivals);
		port->arrival_count = 0;
		rmpp_port_init(&port->rmpp);
		work_init(&port->receive_work, port->cfg.queue, mad_port_on_arrivals);
	}
}
FORK_TAKES(FORK_MAD, &mad_lock, .child = mad_drop_in_child);

/* ---- arrivals -------------------------------------------------------------------------------- */

/* Two P_Keys name one partition, and one of both is a full member's. */
static bool mad_port_pkeys_match(u16 theirs, u16 ours)
{
	return ((theirs ^ ours) & 0x7fff) == 0 && (theirs & 0x7fff) != 0 &&
	       ((theirs | ours) & 0x8000) != 0;
}

/* QP1 receives from every partition of the port: IBA vol 1, 10.9.3. QP0 does not look. *index is
 * the one to answer with: a full member's, if the port is both. */
static bool mad_port_takes_pkey(const struct mad_port *port, u16 pkey, u16 *index)
{
	bool found = false;
	u16 ours;

	*index = 0;
	if (port->cfg.qp_type == IB_QPT_SMI)
		return true;
	for (u16 i = 0; ib_get_cached_pkey(port->cfg.device, port->cfg.port_num, i, &ours) == 0;
	     i++) {
		if (!mad_port_pkeys_match(pkey, ours))
			continue;
		if (!found)
			*index = i;
		found = true;
		if ((ours & 0x8000) != 0) {
			*index = i;
			break;
		}
	}
	return found;
}

/* MAD_COUNTERS: it is good; else why it is dropped. *m is the copy. */
static enum mad_counter mad_port_judge(const struct mad_port *port, const struct mad_arrival *a,
				   struct mad_message *m)
{
	const struct ib_mad_hdr *hdr = &m->mad.mad_hdr;
	bool smi = port->cfg.qp_type == IB_QPT_SMI;

	if (hdr->base_version != IB_MGMT_BASE_VERSION || hdr->mgmt_class == 0 ||
	    mad_is_smi_class(hdr->mgmt_class) != smi)
		return MAD_DROP_VERSION;
	if (!smi && a->qkey != IB_QP1_QKEY)
		return MAD_DROP_QKEY;
	if (!mad_port_takes_pkey(port, a->pkey, &m->wc.pkey_index))
		return MAD_DROP_PKEY;
	return MAD_COUNTERS;
}

static void mad_port_fill(const struct mad_port *port, const struct mad_arrival *a,
		      struct mad_message *m)
{
	memcpy(&m->mad, a->mad, sizeof(m->mad));
	m->grh = a->has_grh ? a->grh : (struct ib_grh){ .paylen = 0 };
	m->wc = (struct ib_wc){ .status = IB_WC_SUCCESS,
				.opcode = IB_WC_RECV,
				.byte_len = sizeof(struct ib_grh) + sizeof(struct ib_mad),
				.src_qp = a->src_qp,
				.wc_flags = a->has_grh ? IB_WC_GRH : 0,
				.slid = a->slid,
				.sl = a->sl,
				.dlid_path_bits = a->dlid_path_bits,
				.port_num = port->cfg.port_num };
	m->recv = (struct ib_mad_recv_wc){ .wc = &m->wc,
					   .recv_buf = { .grh = &m->grh, .mad = &m->mad },
					   .mad_len = sizeof(struct ib_mad),
					   .mad_seg_size = sizeof(struct ib_mad) };
	list_init(&m->recv.rmpp_list);
	list_push_back(&m->recv.rmpp_list, &m->recv.recv_buf.list);
}

static enum mad_counter mad_port_queue(struct mad_port *port, struct mad_message *m, bool begins)
{
	u32 most = begins ? MAD_BEGINNINGS : MAD_ARRIVALS;
	enum mad_counter why = MAD_RECEIVED;

	lock_acquire(&mad_lock);
	if (port->gone || port->arrival_count >= most)
		why = MAD_DROP_FULL;
	else if (list_empty(&port->agents) && port->cfg.device->process_mad == NULL)
		why = MAD_DROP_NO_AGENT;
	if (why == MAD_RECEIVED) {
		list_push_back(&port->arrivals, &m->node);
		port->arrival_count++;
	}
	lock_release(&mad_lock);
	return why;
}

void mad_port_receive(struct mad_port *port, const struct mad_arrival *a)
{
	struct mad_message *m = NULL;
	enum mad_counter why = MAD_DROP_LENGTH;

	if (a->length == IB_MGMT_MAD_SIZE) {
		m = malloc(sizeof(*m)); /* mad_port_fill sets every field */
		why = MAD_DROP_FULL;
	}
	if (m != NULL) {
		mad_port_fill(port, a, m);
		why = mad_port_judge(port, a, m);
	}
	if (why == MAD_COUNTERS)
		why = mad_port_queue(port, m, a->begins);
	mad_count_one(why);
	if (why == MAD_RECEIVED)
		work_push(&port->receive_work);
	else
		free(m);
}
