/* tap.c: records what a link sends during a capture.
 *
 * Local packets are recorded where they are sent, so that each is recorded once. A slot of the
 * recorder's memory is taken before a packet is sent and filled afterwards, so that the record of
 * its response comes later.
 *
 * In: packets, one-sided copies    Out: records    Runs: threads that send    Locks: capture.lock
 */
#include "path/shm/shm_priv.h"

static u32 tap_mtu(const struct board_qp *q, const struct pkt *p)
{
	u8 mtu = q == NULL ? 0 : __atomic_load_n(&q->mtu, __ATOMIC_RELAXED);

	if (p->qp_type == IBV_QPT_UD || mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)
		return CAPTURE_MTU;
	return 128u << mtu;
}

/* Fills the addresses from the entry, which a transition of the queue pair may be changing. */
static void tap_way(const struct board_qp *q, struct capture_packet *out)
{
	u16 from = __atomic_load_n(&q->from, __ATOMIC_RELAXED);
	u16 to = __atomic_load_n(&q->to, __ATOMIC_RELAXED);
	u8 link = __atomic_load_n(&q->link, __ATOMIC_RELAXED);

	if ((link & BOARD_LIDS) == 0) {
		out->sgid_index = from;
		out->dgid_index = to;
		return;
	}
	out->lids = (struct capture_lids){ .slid = from,
					   .dlid = to,
					   .pkey = __atomic_load_n(&q->pkey, __ATOMIC_RELAXED),
					   .sl = link >> BOARD_SL_SHIFT,
					   .has_grh = (link & BOARD_GRH) != 0 };
}

/* A datagram says itself where it goes. */
static struct capture_lids tap_lids(const struct pkt *p)
{
	return (struct capture_lids){ .slid = p->slid,
				      .dlid = p->dlid,
				      .pkey = p->pkey,
				      .sl = p->sl,
				      .has_grh = (p->flags & PKT_HAS_GRH) != 0 && !p->no_grh };
}

static void tap_describe(struct shm_link *l, const struct pkt *p, struct capture_packet *out)
{
	const struct board_qp *q = link_find_qp(l->shm->cfg.board, p->sqpn);

	*out = (struct capture_packet){ .kind = CAPTURE_LOCAL,
					.sgid_index = CAPTURE_NO_GID,
					.dgid_index = CAPTURE_NO_GID,
					.mtu = tap_mtu(q, p),
					.path_bytes = RING_MTU,
					.length = p->length,
					.pkt = p };
	if (p->qp_type == IBV_QPT_UD)
		out->lids = tap_lids(p);
	else if (q != NULL)
		tap_way(q, out);
}

int tap_push(struct shm_link *l, const struct pkt *p, const struct iovec *iov, int iovcnt)
{
	const struct iovec *payload = iov;
	struct capture_packet packet;
	struct capture_hold hold;
	int pieces = iovcnt, err;

	tap_describe(l, p, &packet);
	if (p->flags & PKT_PULL) { /* the memory that the list names */
		packet.length = p->dma_length;
		payload = iov->iov_base;
		pieces = (int)(p->length / sizeof(*payload));
	}
	capture_begin(l->shm->cfg.capture, &packet, &hold);
	err = ring_push(&l->tx, p, iov, iovcnt);
	capture_end(l->shm->cfg.capture, &hold, &packet, payload, pieces, err == 0);
	return err;
}

void tap_begin(struct shm_link *l, const struct path_target *t, struct tap *tap)
{
	tap->pkt = (struct pkt){ .opcode = t->write ? PKT_WRITE_ONLY : PKT_READ_ONLY,
				 .qp_type = IBV_QPT_RC,
				 .dqpn = t->dqpn,
				 .sqpn = t->sqpn,
				 .rkey = t->rkey,
				 .va = t->va,
				 .dma_length = t->length };
	tap_describe(l, &tap->pkt, &tap->packet);
	tap->packet.kind = CAPTURE_DIRECT;
	tap->packet.length = t->length;
	capture_begin(l->shm->cfg.capture, &tap->packet, &tap->hold);
}

void tap_end(struct shm_link *l, struct tap *tap, const struct iovec *iov, int iovcnt, bool went)
{
	capture_end(l->shm->cfg.capture, &tap->hold, &tap->packet, iov, iovcnt, went);
}
