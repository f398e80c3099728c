/* madchannel.c: processes on the hosts of the fabric, and their MADs.
 *
 * A MAD that arrives at a CA's port is for the process that its transaction or communication ID
 * names, for the listener of its service ID, or for the agent of its class: among the processes on
 * that port's host. Nobody takes it: the host answers as one whose kernel has no agent.
 * In:    packets of processes, MADs of the fabric      Out: the same, the other way
 * Runs:  the daemon's only thread                      Locks: none
 * Spec:  IBA vol 1, 12.9.8 (messages for unknown IDs), 13.4.7 (status)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "cm/message/message.h"
#include "daemon/wills.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/fabric/smd.h"
#include "node/steer.h"

enum {
	MADCHANNEL_BUFFER = 1 << 20, /* bytes of MADs that wait in a channel, as far as permitted */
	MADCHANNEL_GET = 1,
	MADCHANNEL_SET = 2,
	MADCHANNEL_GET_RESP = 0x81,
	MADCHANNEL_STATUS = 4,	       /* where it lies */
	MADCHANNEL_UNSUPPORTED = 0x0c, /* method and attribute: none has this combination */
	MADCHANNEL_GRH_NEXT = 6,       /* where the next header lies; the hop limit is behind it */
	MADCHANNEL_BTH = 0x1b,
	MADCHANNEL_GRH_GIDS = 8, /* where the source GID lies; the destination's is behind it */
};
#define MADCHANNEL_GSI_QKEY 0x80010000u

_Static_assert((int)FABRIC_MAD == (int)CM_MAD_BYTES && (int)STEER_MAD == (int)FABRIC_MAD,
	       "MADs have one size");

static bool madchannel_has_port(const struct proc_host *h, u32 port)
{
	return h != NULL && fabricd_place_has(&h->at, port);
}

bool madchannel_has_device(const struct proc *p, u64 device)
{
	for (u32 i = 0; p->host != NULL && i < p->host->at.ca_count; i++)
		if (node_fabric_device(p->host->at.ca[i]) == device)
			return true;
	return false;
}

/* ---- to processes ---------------------------------------------------------------------------- */

/* Sends `count` MADs from `first` on, which are all for one process; those without room are
 * lost. */
static void madchannel_send_run(struct fabricd *f, u32 first, u32 count)
{
	struct proc *p = f->out_to[first];
	struct mmsghdr msgs[FABRICD_BATCH];
	struct iovec iov[FABRICD_BATCH];
	int sent = 0;

	memset(msgs, 0, count * sizeof(*msgs));
	for (u32 i = 0; i < count; i++) {
		iov[i] = (struct iovec){ &f->out[first + i], sizeof(f->out[0]) };
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	if (p != NULL && p->host->channel.fd >= 0)
		sent = sendmmsg(p->host->channel.fd, msgs, count, MSG_DONTWAIT | MSG_NOSIGNAL);
	sent = MAX(sent, 0);
	f->counts.received += (u32)sent;
	for (u32 i = first + (u32)sent; i < first + count; i++) {
		f->counts.overrun++;
		if (f->out[i].mad.dst_qp == 0)
			(void)fabric_port_error(f->fabric, f->out[i].port, FABRIC_ERR_VL15_DROPPED,
						1);
	}
}

void madchannel_flush(struct fabricd *f)
{
	u32 count = f->out_count, first = 0;

	f->out_count = 0;
	while (first < count) {
		u32 n = 1;

		while (first + n < count && f->out_to[first + n] == f->out_to[first])
			n++;
		madchannel_send_run(f, first, n);
		first += n;
	}
}

static void madchannel_queue(struct fabricd *f, struct proc *p, u32 port,
			     const struct fabric_mad *m)
{
	if (f->out_count == FABRICD_BATCH)
		madchannel_flush(f);
	f->out_to[f->out_count] = p;
	f->out[f->out_count].port = port;
	f->out[f->out_count++].mad = *m;
}

/* ---- which process --------------------------------------------------------------------------- */

/* A port of the fabric, for a search of processes on its host. */
struct madchannel_port {
	struct daemon *daemon;
	u32 port;
} OWNED_BY(the daemon);

/* Listeners of other hosts may have the same service ID. */
static bool madchannel_is_here(void *arg, u64 process)
{
	const struct madchannel_port *at = arg;
	struct proc *p = proc_find(at->daemon, process);

	return p != NULL && madchannel_has_port(p->host, at->port);
}

static u64 madchannel_find_listener(struct daemon *d, u32 port, u64 service_id, const u8 *mad)
{
	struct madchannel_port at = { d, port };
	struct directory_filter here = { madchannel_is_here, &at };
	u64 process = 0;
	u32 slot;

	(void)directory_read_listener(d->directory, service_id, steer_private(mad),
				      steer_sender(mad), &here, &process, &slot);
	return process;
}

/* The process of an agent has entered the port's host. */
static u64 madchannel_find_agent(struct daemon *d, u32 port, const struct fabric_mad *m)
{
	u64 process = 0;
	u32 slot;

	list_for_each(p, &d->procs, struct proc, node) {
		const struct proc_host *h = p->host;

		for (u32 i = 0; h != NULL && i < h->at.ca_count; i++) {
			u32 number = port - h->at.first_port[i];

			if (number == 0 || number > h->at.ports[i])
				continue;
			(void)directory_read_agent(d->directory, node_fabric_device(h->at.ca[i]),
						   (u8)number, (u8)m->dst_qp, m->mad, &process,
						   &slot);
			return process;
		}
	}
	return 0;
}

/* The process number; 0: nobody's. */
static u64 madchannel_find(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	struct daemon *d = f->daemon;
	u64 service_id;
	u32 slot;

	switch (steer_mad(m->mad, &slot, &service_id)) {
	case STEER_BY_SLOT:
		return slots_owner(&d->slots, slot);
	case STEER_BY_SERVICE:
		return madchannel_find_listener(d, port, service_id, m->mad);
	case STEER_BY_AGENT:
		return madchannel_find_agent(d, port, m);
	}
	return 0;
}

/* ---- nobody's -------------------------------------------------------------------------------- */

/* What the host of a process that is gone, or of none, answers; false: nothing. */
static bool madchannel_refuse(const u8 *in, u8 out[FABRIC_MAD])
{
	u8 method = in[STEER_METHOD];

	if (in[STEER_CLASS] == STEER_CLASS_CM)
		return msg_answer_for_gone(in, out);
	if (method != MADCHANNEL_GET && method != MADCHANNEL_SET)
		return false;
	memcpy(out, in, FABRIC_MAD);
	out[STEER_METHOD] = MADCHANNEL_GET_RESP;
	out[MADCHANNEL_STATUS] = 0;
	out[MADCHANNEL_STATUS + 1] = MADCHANNEL_UNSUPPORTED;
	return true;
}

/* The host has taken a report. */
static bool madchannel_confirm(const u8 *in, u8 out[FABRIC_MAD])
{
	memcpy(out, in, FABRIC_MAD);
	out[STEER_METHOD] |= STEER_METHOD_RESPONSE;
	return true;
}

/* `make` writes the answer; false: there is none. */
static void madchannel_reply(struct fabricd *f, u32 port, const struct fabric_mad *m,
			     bool (*make)(const u8 *in, u8 out[FABRIC_MAD]))
{
	struct fabric_mad out = { .src_qp = m->dst_qp,
				  .dst_qp = m->src_qp,
				  .qkey = MADCHANNEL_GSI_QKEY,
				  .slid = m->dlid,
				  .dlid = m->slid,
				  .pkey = m->pkey,
				  .sl = m->sl,
				  .has_grh = m->has_grh };

	/* the SMA has answered SMPs that are for it */
	if (m->dst_qp != 1 || !make(m->mad, out.mad))
		return;
	memcpy(out.grh, m->grh, sizeof(out.grh));
	memcpy(out.grh + MADCHANNEL_GRH_GIDS, m->grh + MADCHANNEL_GRH_GIDS + 16, 16);
	memcpy(out.grh + MADCHANNEL_GRH_GIDS + 16, m->grh + MADCHANNEL_GRH_GIDS, 16);
	fabric_send(f->fabric, port, &out);
}

void madchannel_answer(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	f->counts.unclaimed++;
	/* the process of the connection, or the agent, may come back to this node */
	if (!route_is_incomplete(f->daemon))
		madchannel_reply(f, port, m, madchannel_refuse);
}

bool madchannel_to_listener(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	struct proc *p = proc_find(f->daemon, madchannel_find(f, port, m));

	if (p == NULL || !madchannel_has_port(p->host, port))
		return false;
	madchannel_queue(f, p, port, m);
	return true;
}

/* To each process on the host that has connections. */
static void madchannel_to_all(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	list_for_each(p, &f->daemon->procs, struct proc, node)
		if (p->will_fd >= 0 && madchannel_has_port(p->host, port))
			madchannel_queue(f, p, port, m);
}

/* The process of the ID may have died on the way. */
static void madchannel_deliver_cm(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	u64 service_id;
	u32 slot;

	if (steer_names_nobody(m->mad)) {
		madchannel_to_all(f, port, m);
		return;
	}
	if (madchannel_to_listener(f, port, m))
		return;
	(void)wills_take_fabric_answer(f->daemon, port, m->mad);
	if (steer_mad(m->mad, &slot, &service_id) != STEER_BY_SERVICE || !madhold_take(f, port, m))
		madchannel_answer(f, port, m);
}

/* To every subscriber on the host, and to the program that is an agent for reports. That answers
 * them itself; the host answers for subscribers, of which there may be several, or one that is
 * stopped. */
static void madchannel_deliver_report(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	u64 agent = madchannel_find_agent(f->daemon, port, m);
	bool taken = false, answered = false;

	list_for_each(p, &f->daemon->procs, struct proc, node) {
		if (!madchannel_has_port(p->host, port) ||
		    (p->process != agent && !sagroup_subscribes(p, port, m)))
			continue;
		madchannel_queue(f, p, port, m);
		taken = true;
		answered |= p->process == agent;
	}
	if (!taken)
		madchannel_answer(f, port, m);
	else if (!answered)
		madchannel_reply(f, port, m, madchannel_confirm);
}

void madchannel_deliver(void *arg, u32 port, const struct fabric_mad *m)
{
	struct fabricd *f = arg;
	struct proc *p;

	if (smd_receive(f->smd, port, m) || sagroup_take_answer(f, port, m))
		return;
	if (sagroup_is_report(m)) {
		madchannel_deliver_report(f, port, m);
		return;
	}
	if (m->dst_qp == 1 && m->mad[STEER_CLASS] == STEER_CLASS_CM) {
		madchannel_deliver_cm(f, port, m);
		return;
	}
	p = proc_find(f->daemon, madchannel_find(f, port, m));
	if (p != NULL && madchannel_has_port(p->host, port))
		madchannel_queue(f, p, port, m);
	else
		madchannel_answer(f, port, m);
}

/* ---- wills ----------------------------------------------------------------------------------- */

/* Is the port on the host of this CA? */
static bool madchannel_same_host(const struct fabric_view *v, u32 ca, u32 port)
{
	u32 cas[NODE_HOST_CAS], count;
	struct fabric_port_attr p;
	struct fabric_node_attr n;

	if (fabric_node_read(v, ca, &n) < 0 || fabric_port_read(v, port, &p) < 0)
		return false;
	n.desc[strcspn(n.desc, " ")] = '\0';
	count = fabric_find_host(v, n.desc, cas, NODE_HOST_CAS);
	for (u32 i = 0; i < MIN(count, (u32)NODE_HOST_CAS); i++)
		if (cas[i] == p.node)
			return true;
	return false;
}

/* The slots of a process show its host as long as it has them. */
bool madchannel_was_at(const struct daemon *d, u64 process, u32 port)
{
	for (u32 slot = 0; d->fabric != NULL && slot < NODE_SLOTS; slot++) {
		u32 host = d->directory->slot_host[slot];

		if (d->slots.owner[slot] == process)
			return host != 0 &&
			       madchannel_same_host(fabric_view(d->fabric->fabric), host - 1, port);
	}
	return false;
}

bool madchannel_send_will(struct daemon *d, const struct node_will *w)
{
	struct fabric_mad m = { .src_qp = 1,
				.dst_qp = 1,
				.qkey = MADCHANNEL_GSI_QKEY,
				.slid = w->slid,
				.dlid = w->dlid,
				.pkey = w->pkey,
				.sl = w->sl & 15,
				.has_grh = w->has_grh != 0 };
	u32 first = htobe32(6u << 28 | (u32)w->traffic_class << 20 | (w->flow_label & 0xfffff));

	if (d->fabric == NULL)
		return false;
	memcpy(m.grh, &first, sizeof(first));
	m.grh[MADCHANNEL_GRH_NEXT] = MADCHANNEL_BTH;
	m.grh[MADCHANNEL_GRH_NEXT + 1] = w->hop_limit;
	memcpy(m.grh + MADCHANNEL_GRH_GIDS, w->sgid, 16);
	memcpy(m.grh + MADCHANNEL_GRH_GIDS + 16, w->dgid, 16);
	memcpy(m.mad, w->mad, sizeof(w->mad));
	fabric_send(d->fabric->fabric, w->port, &m);
	return true;
}

void madchannel_changed(void *arg, u32 port, u32 what)
{
	struct fabricd *f = arg;

	if ((what & FABRIC_CHANGED_STATE) != 0)
		smd_port_changed(f->smd, port);
	/* a process that is told finds the tree as it is now */
	hosttree_changed(f, port, what);
	list_for_each(p, &f->daemon->procs, struct proc, node)
		if (madchannel_has_port(p->host, port))
			event_fabric(p, port, what);
}

/* ---- from processes -------------------------------------------------------------------------- */

static void madchannel_close(struct proc_host *h)
{
	if (h->channel.fd < 0)
		return;
	loop_remove(&h->proc->daemon->loop, &h->channel);
	close(h->channel.fd);
	h->channel.fd = -1;
}

static void madchannel_take_refused(struct fabricd *f, const struct proc_host *h,
				    const struct proto_fabric_refused *r)
{
	struct fabric_violation v = { .key = r->key,
				      .slid = r->slid,
				      .dlid = r->dlid,
				      .src_qp = r->src_qp,
				      .dst_qp = r->dst_qp,
				      .sl = r->sl & 15,
				      .is_qkey = r->is_qkey != 0 };

	if (madchannel_has_port(h, r->port))
		fabric_port_violation(f->fabric, r->port, &v);
	else
		f->counts.malformed++;
}

static void madchannel_take(struct fabricd *f, const struct proc_host *h,
			    const struct proto_fabric_mad *m, size_t size)
{
	struct proto_fabric_refused refused;

	if (size == sizeof(refused)) {
		memcpy(&refused, m, sizeof(refused));
		madchannel_take_refused(f, h, &refused);
		return;
	}
	if (size != sizeof(*m) || !madchannel_has_port(h, m->port) || m->mad.dst_qp > 1) {
		f->counts.malformed++;
		return;
	}
	f->counts.sent++;
	fabric_send(f->fabric, m->port, &m->mad);
}

static void madchannel_on_packets(struct loop_source *s, u32 events)
{
	struct proc_host *h = container_of(s, struct proc_host, channel);
	struct fabricd *f = h->proc->daemon->fabric;
	struct mmsghdr msgs[FABRICD_BATCH];
	struct iovec iov[FABRICD_BATCH];
	int n;

	memset(msgs, 0, sizeof(msgs));
	for (u32 i = 0; i < FABRICD_BATCH; i++) {
		iov[i] = (struct iovec){ &f->in[i], sizeof(f->in[0]) };
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	n = recvmmsg(s->fd, msgs, FABRICD_BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		/* the end of the connection, which the rest of the batch repeats */
		if (msgs[i].msg_len == 0) {
			madchannel_close(h);
			break;
		}
		madchannel_take(f, h, &f->in[i],
				msgs[i].msg_hdr.msg_flags & MSG_TRUNC ? 0 : msgs[i].msg_len);
	}
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		madchannel_close(h);
	madchannel_flush(f);
}

/* ---- coming and going ------------------------------------------------------------------------ */

static int madchannel_open(struct proc_host *h, int *theirs)
{
	int ends[2], err, size = MADCHANNEL_BUFFER;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	(void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	(void)setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	err = loop_add(&h->proc->daemon->loop, &h->channel, ends[0], EPOLLIN,
		       madchannel_on_packets);
	if (err < 0) {
		close(ends[0]);
		close(ends[1]);
		return err;
	}
	*theirs = ends[1];
	return 0;
}

int madchannel_enter(struct proc *p, const char *host, int *theirs)
{
	struct fabricd *f = p->daemon->fabric;
	struct proc_host *h;
	int err;

	if (f == NULL)
		return -ENODEV;
	if (p->host != NULL)
		return -EALREADY;
	h = calloc(1, sizeof(*h));
	if (h == NULL)
		return -ENOMEM;
	h->proc = p;
	err = fabricd_place_find(fabric_view(f->fabric), host, &h->at);
	if (err == 0)
		err = madchannel_open(h, theirs);
	if (err < 0) {
		free(h);
		return err;
	}
	p->host = h;
	f->processes++;
	madchannel_show(p);
	(void)hosttree_show(f, host); /* a process does without it, and it has been logged */
	return 0;
}

void madchannel_show(struct proc *p)
{
	u32 shown = p->host == NULL ? 0 : p->host->at.ca[0] + 1;
	struct daemon *d = p->daemon;

	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		if (d->slots.owner[slot] == p->process)
			__atomic_store_n(&d->directory->slot_host[slot], shown, __ATOMIC_RELAXED);
}

void madchannel_leave(struct proc *p)
{
	struct fabricd *f = p->daemon->fabric;
	struct proc_host *h = p->host;

	if (h == NULL)
		return;
	/* they send MADs, some of them to the process itself */
	smhold_leave(p);
	sagroup_leave_all(p);
	for (u32 i = 0; i < f->out_count; i++)
		if (f->out_to[i] == p)
			f->out_to[i] = NULL;
	p->host = NULL;
	f->processes--;
	h->proc = p;
	madchannel_close(h);
	free(h);
}
