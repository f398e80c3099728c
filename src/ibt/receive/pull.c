/* pull.c: long SENDs whose packet names the sender's memory: the receiver copies it (PKT_PULL).
 * In:    packets with a list of the sender's iovecs    Out: the receive request's memory
 * Runs:  the receiving thread    Locks: rq_lock
 */
#include <errno.h>

#include "ibt/receive/pull.h"
#include "ibt/receive/recv_queue.h"

/* `bytes` from `at` on of a list that has as many: how many elements of `out`, at most n. `out` may
 * be the list itself. */
static int pull_part(const struct iovec *list, int n, u64 at, u64 bytes, struct iovec *out)
{
	int count = 0;

	for (int i = 0; i < n && bytes != 0; i++) {
		u64 skip = MIN(at, (u64)list[i].iov_len), k = MIN(list[i].iov_len - skip, bytes);

		at -= skip;
		bytes -= k;
		if (k != 0)
			out[count++] = (struct iovec){ .iov_base = (u8 *)list[i].iov_base + skip,
						       .iov_len = k };
	}
	return count;
}

/* Copies in one call, unless the local memory lies in too many pieces (pages of an FMR, say). 0, an
 * error of mem_pieces or of the path. */
static int pull_list(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			  const struct iovec *theirs, int n) REQUIRES(qp->resp.rq_lock)
{
	struct iovec part[PULL_LIST], ours[2 * IBT_MAX_SGE];
	u64 step = p->dma_length, at = 0;

	while (at != p->dma_length) {
		u64 bytes = MIN(step, p->dma_length - at);
		int m = mem_pieces(qp->ibt->cfg.mem, qp->resp.pd, &qp->resp.cursor, bytes,
				   IBV_ACCESS_LOCAL_WRITE, ours, (int)ARRAY_LEN(ours));

		if (unlikely(m == -E2BIG)) {
			step = bytes / 2;
			continue;
		}
		if (m >= 0)
			m = from->path->ops->pull(from, p->sqpn, qp->qpn, part,
						  pull_part(theirs, n, at, bytes, part), ours, m,
						  bytes);
		if (m < 0)
			return m;
		at += bytes;
	}
	return 0;
}

/* Copies the list of a packet to `theirs` and judges it: *n elements. */
static enum resp_verdict pull_read(const struct pkt *p, const void *payload, struct iovec *theirs,
				   u32 *n)
{
	u64 named = 0;

	*n = p->length / sizeof(theirs[0]);
	if (p->length > PULL_LIST * sizeof(theirs[0]) || p->dma_length > PULL_BYTES)
		return RESP_NAK_INVALID;
	memcpy(theirs, payload, *n * sizeof(theirs[0]));
	for (u32 i = 0; i < *n; i++)
		named += MIN(theirs[i].iov_len, (size_t)PULL_BYTES + 1);
	return named == p->dma_length ? RESP_OK : RESP_NAK_INVALID;
}

/* Copies what the packet names in the sender's memory into the receive request. */
enum resp_verdict pull_copy(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
				   const void *payload) REQUIRES(qp->resp.rq_lock)
{
	struct iovec theirs[PULL_LIST];
	struct mem_cursor before = qp->resp.cursor;
	enum resp_verdict verdict;
	u32 n;
	int err;

	verdict = pull_read(p, payload, theirs, &n);
	if (verdict != RESP_OK)
		return verdict;
	err = pull_list(qp, from, p, theirs, (int)n);
	if (likely(err == 0))
		return RESP_OK;
	if (err == -EMSGSIZE || err == -EACCES)
		return rq_fail(qp, err);
	qp->resp.cursor = before;
	if (err == -EPIPE)
		return RESP_DROP;
	/* In the middle of a message its packets could not be numbered anew. */
	return qp->resp.offset == 0 ? RESP_NAK_PULL : rq_fail(qp, -EFAULT);
}

enum resp_verdict pull_peek(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload, struct iovec *list, void *to, u32 bytes)
{
	struct iovec part[PULL_LIST], ours = { .iov_base = to, .iov_len = bytes };
	enum resp_verdict verdict;
	u32 n;
	int err;

	verdict = pull_read(p, payload, list, &n);
	if (verdict != RESP_OK || bytes == 0)
		return verdict;
	err = from->path->ops->pull(from, p->sqpn, qp->qpn, part,
				    pull_part(list, (int)n, 0, bytes, part), &ours, 1, bytes);
	return err == 0 ? RESP_OK : err == -EPIPE ? RESP_DROP : RESP_NAK_PULL;
}

void pull_skip(struct pkt *p, struct iovec *list, u32 bytes)
{
	int n = (int)(p->length / sizeof(list[0]));

	p->dma_length -= bytes;
	n = pull_part(list, n, bytes, p->dma_length, list);
	p->length = (u32)n * sizeof(list[0]);
}
