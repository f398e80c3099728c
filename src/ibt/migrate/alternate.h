/* alternate.h: automatic path migration: a second path to the peer, and the move to it.
 *
 * The alternate path is loaded by ibt_qp_load_alternate. It counts while qp->attr.path_mig_state is
 * REARM or ARMED: then the queue pair is watched (QP_TAKES_WATCHED): what comes for it goes through
 * migrate.c, what it sends through portdown.c. Otherwise nothing here costs a packet anything.
 */
#ifndef IBT_MIGRATE_ALTERNATE_H
#define IBT_MIGRATE_ALTERNATE_H

#include "ibt/ibt_qp.h"

struct alternate {
	/* The alternate path, with a reference; after the move the path before, for those that
	 * still look at it. */
	struct path_dest *dest WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	struct path_av av WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	bool loaded WRITTEN_UNDER(req.sq_lock, resp.rq_lock); /* not used yet */
	bool due OWNED_BY(requester.sq_lock); /* the requester has used up its retries */
	/* PATH_MIG_ERR has been said since the queue pair was armed */
	bool refused OWNED_BY(responder.rq_lock);
};

/* Does the alternate path count? Either lock. */
bool alternate_is_active(const struct ibt_qp *qp);
/* What qp->takes is to be while the port is up. Either lock. */
u8 alternate_takes(const struct ibt_qp *qp);
/* The same, written: the state, the path or the alternate path has changed. */
void alternate_watch(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock);
/* Would the consumer's wish for MIGRATED move the queue pair? Either lock. */
bool alternate_is_armed(const struct ibt_qp *qp);
/* Is it the alternate path of a queue pair that may move? rq_lock. */
bool alternate_is_alternate(const struct ibt_qp *qp, const struct path_dest *from)
	REQUIRES(qp->resp.rq_lock);
/* The retries are used up. True: the queue pair is to move instead (migrate_run). */
bool alternate_begins(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* The path for migrate_run, once after alternate_begins has said so; else NULL. */
struct path *alternate_take_due(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Takes the alternate path off the queue pair: for alternate_free, once no lock is held. */
struct alternate *alternate_take(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
	REQUIRES(qp->resp.rq_lock);
void alternate_free(struct alternate *m);

#endif
