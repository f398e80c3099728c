/* udp_program.c: builds the program.
 * In:    which member has which slot   Out: instructions
 * Runs:  the daemon's only thread      Locks: none
 * Spec:  IBA vol 1, 9.2 (BTH), 13.4.2 (MAD), 12.6 (CM); linux/filter.h
 */
#include "daemon/udp_program.h"

#include <string.h>

#include "node/steer.h"

enum {
	UDP_BTH_DQPN = 4, /* the word whose low 24 bits are the destination QP */
	UDP_BTH_UD_SEND = 0x64,
	UDP_MAD = 20, /* behind BTH and DETH */
};

#define STMT(code, k) ((struct sock_filter)BPF_STMT(code, k))
#define JUMP(code, k, yes, no) ((struct sock_filter)BPF_JUMP(BPF_JMP | (code) | BPF_K, k, yes, no))
#define LOAD(size, at) STMT(BPF_LD | (size) | BPF_ABS, at)

/* The accumulator has the destination QP. Falls through with the process' slot in it: the queue
 * pair's, or for QP1 that of the ID in the MAD, as steer_mad finds it. */
static u32 program_find_slot(struct sock_filter *out)
{
	const struct sock_filter code[] = {
		/* 0 */ JUMP(BPF_JEQ, 1, 2, 0),
		/* 1 */ STMT(BPF_ALU | BPF_RSH | BPF_K, NODE_INDEX_BITS),
		/* 2 */ STMT(BPF_JMP | BPF_JA, 19), /* to the end */
		/* 3: QP1 takes nothing but datagrams */
		LOAD(BPF_B, 0),
		/* 4 */ JUMP(BPF_JEQ, UDP_BTH_UD_SEND, 0, 15),
		/* 5 */ LOAD(BPF_B, UDP_MAD + STEER_CLASS),
		/* 6 */ JUMP(BPF_JEQ, STEER_CLASS_CM, 5, 0),
		/* 7: another class */
		LOAD(BPF_B, UDP_MAD + STEER_METHOD),
		/* 8 */ JUMP(BPF_JEQ, STEER_METHOD_TRAP_REPRESS, 1, 0),
		/* 9 */ JUMP(BPF_JSET, STEER_METHOD_RESPONSE, 0, 10),
		/* 10 */ LOAD(BPF_W, UDP_MAD + STEER_TID),
		/* 11 */ STMT(BPF_JMP | BPF_JA, 9), /* to the shift */
		/* 12: the communication manager */
		LOAD(BPF_H, UDP_MAD + STEER_ATTRIBUTE),
		/* 13 */ JUMP(BPF_JEQ, STEER_CM_REQ, 6, 0),
		/* 14 */ JUMP(BPF_JEQ, STEER_CM_SIDR_REQ, 5, 0),
		/* 15 */ JUMP(BPF_JEQ, STEER_CM_SIDR_REP, 2, 0),
		/* 16 */ LOAD(BPF_W, UDP_MAD + STEER_REMOTE_ID),
		/* 17 */ STMT(BPF_JMP | BPF_JA, 3), /* to the shift */
		/* 18 */ LOAD(BPF_W, UDP_MAD + STEER_LOCAL_ID),
		/* 19 */ STMT(BPF_JMP | BPF_JA, 1), /* to the shift */
		/* 20: names no process */
		STMT(BPF_RET | BPF_K, 0),
		/* 21: the shift */
		STMT(BPF_ALU | BPF_RSH | BPF_K, STEER_SLOT_SHIFT),
	};

	memcpy(out, code, sizeof(code));
	return ARRAY_LEN(code);
}

u32 daemon_udp_program_build(const u16 member_of[NODE_SLOTS],
			     struct sock_filter out[UDP_PROGRAM_MAX])
{
	u32 n = 0;

	/* offset 0 is the first byte behind the UDP header; a load beyond the datagram's end ends
	 * the program with 0, the node's member */
	out[n++] = LOAD(BPF_W, UDP_BTH_DQPN);
	out[n++] = STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff);
	n += program_find_slot(out + n);
	for (u32 slot = 1; slot < NODE_SLOTS; slot++) {
		if (member_of[slot] == 0)
			continue;
		out[n++] = JUMP(BPF_JEQ, slot, 0, 1);
		out[n++] = STMT(BPF_RET | BPF_K, member_of[slot]);
	}
	out[n++] = STMT(BPF_RET | BPF_K, 0);
	return n;
}
