/* udp_program.c: builds the program.
 * In:    which member has which slot   Out: instructions
 * Runs:  the daemon's only thread      Locks: none
 * Spec:  IBA vol 1, 9.2 (BTH); linux/filter.h
 */
#include "node/daemon/udp_program.h"

enum { UDP_BTH_DQPN = 4 /* the word whose low 24 bits are the destination QP */ };

u32 udp_program_build(const u16 member_of[NODE_SLOTS], struct sock_filter out[UDP_PROGRAM_MAX])
{
	u32 n = 0;

	/* offset 0 is the first byte behind the UDP header; a load beyond the datagram's end ends
	 * the program with 0, the node's member */
	out[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, UDP_BTH_DQPN);
	out[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, NODE_INDEX_BITS);
	out[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, NODE_SLOTS - 1);
	for (u32 slot = 1; slot < NODE_SLOTS; slot++) {
		if (member_of[slot] == 0)
			continue;
		out[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 0, 1);
		out[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, member_of[slot]);
	}
	out[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	return n;
}
