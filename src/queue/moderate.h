/* moderate.h: events that are delayed until several completions have come, inside the room. */
#ifndef QUEUE_MODERATE_H
#define QUEUE_MODERATE_H

#include "queue/cq.h"

/* Bits: what is to be done once the CQ's lock is released (cq_follow). */
enum cq_after { CQ_AFTER_NONE = 0, CQ_AFTER_FIRE = 1 << 0, CQ_AFTER_KICK = 1 << 1 };

/* The arm is met by the completions from running number `first` on: does its event come now
 * (CQ_AFTER_FIRE), or later? Starts or ends gathering. cq->moderation is there. */
u32 moderation_judge(struct cq *cq, u32 first) REQUIRES(cq->lock);
/* The CQ drops completions: none is numbered `head` or above any more. */
void moderation_forget(struct cq *cq, u32 head) REQUIRES(cq->lock);
/* From now on each event comes at once, and no timer raises one. May block. */
void moderation_stop(struct cq *cq) EXCLUDES(&cq->lock);
/* After moderation_stop, when nobody else has the CQ any more. */
void moderation_fini(struct cq *cq);

/* cq.c: fires the sink or kicks whoever runs the timers. */
void cq_follow(struct cq *cq, u32 after) EXCLUDES(cq->lock, cq->poll_lock);
/* Uses up the arm, whose event announces all that waits. */
void cq_spend_gathered(struct cq *cq) REQUIRES(cq->lock);

#endif
