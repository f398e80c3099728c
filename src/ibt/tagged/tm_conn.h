/* tm_conn.h: what a queue pair of a tag-matching SRQ has beside others. */
#ifndef IBT_TAGGED_TM_CONN_H
#define IBT_TAGGED_TM_CONN_H

#include "ibt/ibt_qp.h"

/* Places in the send queue beyond the consumer's, for rendezvous at a time: each is a READ, then
 * its FIN. One place more is for the moment at which a READ has ended and its FIN is added. */
enum { TM_SLOTS = 16, TM_RING = TM_SLOTS + 1 };

/* What the message in progress is. */
enum tm_kind {
	TM_UNEXPECTED, /* tagged, and no entry matches: lies in an ordinary buffer */
	TM_NO_TAG,     /* NO_TAG, FIN, or without a header: in an ordinary buffer */
	TM_NOTICE,     /* a WRITE with immediate: uses up an ordinary buffer */
	TM_EAGER,      /* its payload lies in the buffer of an entry, which is free again */
	TM_RNDV,       /* the adapter READs the data into the entry's buffer */
	TM_RNDV_SHORT, /* too much for the entry: the request lies in its buffer */
};

struct tm_conn {
	/* the message in progress */
	u8 kind OWNED_BY(responder.rq_lock);	      /* enum tm_kind */
	bool told_match OWNED_BY(responder.rq_lock); /* EAGER in pieces: the match has completed */
	bool sync_req OWNED_BY(responder.rq_lock); /* TM_UNEXPECTED: completes with TM_SYNC_REQ */
	struct tag_entry *entry OWNED_BY(responder.rq_lock); /* a rendezvous's, or NULL */
	struct tm_header header OWNED_BY(responder.rq_lock);

	/* The READs and FINs in the send queue, in its order; a ring. */
	struct {
		u32 at;			 /* index in the send queue */
		struct tag_entry *entry; /* NULL: a FIN */
	} slot[TM_SLOTS] OWNED_BY(requester.sq_lock);
	u32 first OWNED_BY(requester.sq_lock), count OWNED_BY(requester.sq_lock);
	/* entries that have matched a rendezvous and wait for a slot, in the order of matching */
	struct list_head pending OWNED_BY(ibt_srq.lock);

	/* responder.srq_copy: an ordinary buffer, the entry of an EAGER, or the wr_id of the
	 * entry of a rendezvous */
	struct recv_wqe copy OWNED_BY(responder.rq_lock);
};

/* Makes responder.srq_copy part of a struct tm_conn. 0, -ENOMEM. */
int tm_conn_create(struct ibt_qp *qp);
/* Frees it. */
void tm_conn_free(struct ibt_qp *qp);

/* In a forked child: forgets what has been taken of the SRQ. */
void tm_conn_orphan(struct ibt_qp *qp);

/* Does the queue pair receive by a tag-matching SRQ? */
static inline bool tm_is_used(const struct ibt_qp *qp)
{
	return (qp->traits & TRAIT_TAGS) != 0 && qp->srq != NULL && srq_matches_tags(qp->srq);
}

/* Only where tm_is_used. */
static inline struct tm_conn *tm_conn(const struct ibt_qp *qp)
{
	return container_of(qp->resp.srq_copy, struct tm_conn, copy);
}

#endif
