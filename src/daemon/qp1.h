/* qp1.h: datagrams to and from QP1, as the node receives and sends them itself: for services on
 * which nobody listens, and for processes that are gone. */
#ifndef DAEMON_QP1_H
#define DAEMON_QP1_H

#include "capture/capture.h"
#include "node/node.h"

enum { QP1_MAD = 20 /* where the MAD lies, behind BTH and DETH */, QP1_MAD_BYTES = 256 };

/* Judges a datagram as it came: ICRC, headers, P_Key, Q_Key. True: it is a MAD for QP1, which lies
 * at payload + QP1_MAD, and *sqpn is the queue pair that sent it. */
bool qp1_judge(const struct node_mad *m, u32 *sqpn);

/* Writes the payload of a datagram to queue pair `dqpn` along m->sgid, dgid and sport, which the
 * ICRC covers. `pkey`: 0 is the default one. */
void qp1_pack(struct node_mad *m, u16 pkey, u32 dqpn, const u8 mad[QP1_MAD_BYTES]);

/* Has a datagram recorded that no process takes or sends, if somebody records. */
void qp1_record(struct capture *c, const struct node_mad *m, bool inbound);

#endif
