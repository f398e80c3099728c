/* path.c: the way to a neighbour: the path record of its GID, and an address handle of that.
 *
 * A handle stays in use while the path is asked for anew: a subnet administrator that does not
 * answer stops no traffic.
 * In:    neighbours, answers of the SA    Out: questions, handles
 * Runs:  senders, the completion handler, callbacks of the SA client    Locks: ipoib.lock
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_cache.h>

#include "base/log.h"
#include "ulp/ipoib/ipoib_priv.h"

static void ipoib_path_take(struct ipoib *ip, struct ipoib_neigh *n, struct ib_sa_path_rec *path)
	REQUIRES(ip->lock)
{
	struct ib_ah_attr attr;
	struct ib_ah *ah;

	if (ib_init_ah_from_path(ip->device, ip->config.port, path, &attr) != 0)
		return;
	ah = ib_create_ah(ip->pd, &attr);
	if (IS_ERR(ah))
		return;
	if (n->ah != NULL)
		ib_destroy_ah(n->ah);
	n->ah = ah;
	n->path_stale = false;
}

static void ipoib_path_found(int status, struct ib_sa_path_rec *path, void *context)
{
	struct ipoib_query *q = context;
	struct ipoib *ip = q->ip;
	struct ipoib_neigh *n;

	lock_acquire(&ip->lock);
	list_remove(&q->node);
	n = ipoib_neigh_find(ip, q->neighbour);
	if (n != NULL)
		n->path_asked = false;
	/* the neighbour may be at another port by now */
	if (n != NULL && n->known && ip->open && status == 0 &&
	    memcmp(path->dgid.raw, ipoib_hw_gid(&n->hw), 16) == 0)
		ipoib_path_take(ip, n, path);
	if (n != NULL && n->ah != NULL)
		ipoib_neigh_push(ip, n);
	if (status != 0 && status != -EINTR)
		log_info("ipoib", "no path to a neighbour: error %d", -status);
	lock_release(&ip->lock);
	free(q);
}

static int ipoib_path_begin(struct ipoib *ip, struct ipoib_neigh *n, struct ipoib_query *q)
	REQUIRES(ip->lock)
{
	struct ib_sa_path_rec want = { .pkey = htobe16(ip->pkey), .numb_path = 1, .reversible = 1 };

	memcpy(want.sgid.raw, ipoib_hw_gid(&ip->own), 16);
	memcpy(want.dgid.raw, ipoib_hw_gid(&n->hw), 16);
	return ib_sa_path_rec_get(&ip->sa, ip->device, ip->config.port, &want,
				  IB_SA_PATH_REC_SGID | IB_SA_PATH_REC_DGID |
					  IB_SA_PATH_REC_PKEY | IB_SA_PATH_REC_NUMB_PATH |
					  IB_SA_PATH_REC_REVERSIBLE,
				  IPOIB_PATH_MS, 0, ipoib_path_found, q, &q->query);
}

void ipoib_path_ask(struct ipoib *ip, struct ipoib_neigh *n)
{
	u64 now = clock_now_ns();
	struct ipoib_query *q;

	if (!ip->open || !ip->active || !n->known || n->path_asked || now < n->path_again_ns)
		return;
	n->path_again_ns = now + IPOIB_AGAIN_NS;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return;
	q->ip = ip;
	memcpy(q->neighbour, n->ip, 16);
	/* the callback waits for the lock, and so comes behind this */
	q->id = ipoib_path_begin(ip, n, q);
	if (q->id <= 0) {
		free(q);
		return;
	}
	n->path_asked = true;
	list_push_back(&ip->queries, &q->node);
}

void ipoib_path_flush(struct ipoib *ip)
{
	for (u32 i = 0; i < IPOIB_BUCKETS; i++) {
		list_for_each(n, &ip->bucket[i], struct ipoib_neigh, node) {
			n->path_stale = true;
			n->path_again_ns = 0;
		}
	}
}

void ipoib_path_cancel(struct ipoib *ip)
{
	list_for_each(q, &ip->queries, struct ipoib_query, node)
		ib_sa_cancel_query(q->id, q->query);
}
