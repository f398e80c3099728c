/* datagram.h: a datagram to or from QP1 (struct node_mad) as RoCE headers see it. Both the daemon
 * and the path to other hosts use it. */
#ifndef NODE_DATAGRAM_H
#define NODE_DATAGRAM_H

#include "node/node.h"
#include "wire/roce.h"

/* What its addresses and header fields say; identification and DF are 0. */
struct roce_flow datagram_flow(const struct node_mad *m);
/* Tells whether the ICRC of a datagram that came is right. *flow is filled in any case, with the
 * identification and DF that the ICRC shows: no socket does. Nothing is known of the sender's
 * identifications: the first packet of a source may have any. */
bool datagram_is_right(const struct node_mad *m, struct roce_flow *flow);

#endif
