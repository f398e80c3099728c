/* udp_program.h: the classic BPF program that picks the member of a SO_REUSEPORT group. */
#ifndef DAEMON_UDP_PROGRAM_H
#define DAEMON_UDP_PROGRAM_H

#include <linux/filter.h>

#include "base/compiler.h"
#include "node/node.h"

enum { UDP_PROGRAM_MAX = 32 + 2 * NODE_SLOTS };

/* Writes the program that sends datagrams for slot s to member member_of[s], and all others to
 * member 0; 0 in member_of: no owner. A datagram to QP1 is for the slot that steer_mad finds in its
 * MAD. Returns the program's length. */
u32 daemon_udp_program_build(const u16 member_of[NODE_SLOTS],
			     struct sock_filter out[UDP_PROGRAM_MAX]);

#endif
