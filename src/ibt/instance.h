/* instance.h: one engine: its configuration, its paths, and the table of its queue pairs. */
#ifndef IBT_INSTANCE_H
#define IBT_INSTANCE_H

#include "ibt/ibt.h"

enum { IBT_PROXY_BUCKETS = 64 };

struct ibt {
	struct ibt_config cfg FIXED;
	struct path *paths[4] FIXED;
	u32 path_count FIXED;
	/* What timers of a rate call (rate.c): the scheduler, the responder. */
	void (*rate_due)(struct timer *t) FIXED, (*answer_rate_due)(struct timer *t) FIXED;
	/* What the timer of a target's forwarding calls (forward.c): the responder. */
	void (*forward_due)(struct timer *t) FIXED;
	u32 polls ATOMIC_ONLY; /* hint: every so often timers are looked at */
	struct lock table_lock;
	/* by slot; entries are stored with release, and looked up without a lock */
	struct ibt_qp **tables[IBT_TABLES] WRITTEN_UNDER(table_lock);
	/* SRQs of XRC domains, by the low bits of their numbers: as `tables`. NULL: no such SRQ has
	 * been made */
	struct ibt_srq **xrc_srqs WRITTEN_UNDER(table_lock);
	/* struct xrc_conn.node: proxies of other processes' XRC targets, IBT_PROXY_BUCKETS lists by
	 * the targets' numbers. NULL: there has been none */
	struct list_head *proxies OWNED_BY(callbacks of the first path);
	u32 proxy_count OWNED_BY(callbacks of the first path);
	u32 proxy_sweep OWNED_BY(callbacks of the first path); /* look for idle ones from here on */
};

#endif
