/* agent.h: which unsolicited MADs a MAD agent takes. The MAD layer judges the same of the agents of
 * its own process (mad/agent.c); here are those of all processes of a node. Pure functions.
 */
#ifndef NODE_AGENT_H
#define NODE_AGENT_H

#include "node/node.h"

/* Could such an agent take any MAD? Of a process that may say anything. */
bool node_agent_is_valid(const struct node_agent *a);
/* Is there a MAD that both would take? */
bool node_agent_overlaps(const struct node_agent *a, const struct node_agent *b);
/* Does the agent take the MAD (STEER_MAD bytes of any content) that came to this QP of a port? */
bool node_agent_takes(const struct node_agent *a, u64 device, u8 port, u8 qpn, const u8 *mad);

#endif
