/* qp_inside.h: what a queue pair keeps for itself, for `anyverbs qp`. */
#ifndef ANYVERBS_QP_INSIDE_H
#define ANYVERBS_QP_INSIDE_H

#include "view.h"

/* Prints the queues, PSNs, retries and window of a queue pair of process `pid`, from that process'
 * memory; or why it cannot be read. */
void qp_print_inside(const struct view *v, const struct view_qp *q, s32 pid);

#endif
