/* world.h: a world for tests of the path: two sides over real loopback sockets, in the node's
 * and the engine's place. Each test program has one. */
#ifndef PATH_UDP_TEST_SUPPORT_WORLD_H
#define PATH_UDP_TEST_SUPPORT_WORLD_H

#include "path/udp/udp.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/udp_socket.h"

enum { SLOT_A = 5, SLOT_B = 9, WIRE_SLOT = 70, LOG_PACKETS = 256, LOG_BYTES = 4200 };

/* One side: a path, and what it has received. */
struct side {
	struct udp *udp;
	struct path *path;
	u64 counters[PATH_COUNTERS];
	u8 gid[16];
	bool absent; /* its address has left the host */
	bool both;   /* it has the other side's address, too */
	u32 asked; /* slots for which sockets were asked, one bit each */
	bool ticking; /* as udp_config has it; so is `sleepers` */
	u32 sleepers;
	u32 count, batches;
	u32 strangers; /* asked about */
	bool deaf;     /* takes nothing from strangers */
	u32 wire_slot; /* of a process of its node that is reached over the wire only; 0: none */
	struct path_dest *from;
	struct pkt got[LOG_PACKETS];
	u8 data[LOG_PACKETS][LOG_BYTES];
	u8 sgid[16], dgid[16]; /* of the last packet */
} OWNED_BY(the test);

static struct side side[2];

/* ---- in the node's place ---- */

struct node {
	struct side *side;
} OWNED_BY(the test);
static struct node nodes[2] = { { &side[0] }, { &side[1] } };

/* A socket stays the same while its address is there, as the node promises. */
static int node_fd[2] = { -1, -1 };

int node_udp_sockets(struct node *n, u32 device, u32 slot, struct node_socket *out, int max)
{
	int which = n->side == &side[1];

	n->side->asked |= 1u << slot % 32;
	if (n->side->absent) {
		if (node_fd[which] >= 0)
			close(node_fd[which]);
		node_fd[which] = -1;
		return 0;
	}
	if (node_fd[which] < 0) {
		node_fd[which] = node_udp_socket_open(n->side->gid);
		if (node_fd[which] < 0 ||
		    node_udp_socket_bind(node_fd[which], n->side->gid, 0) != 0)
			return -EADDRINUSE;
	}
	*out = (struct node_socket){ .fd = dup(node_fd[which]),
				     .gid_index = 1,
				     .ifindex = if_nametoindex("lo"),
				     .id = (u64)node_fd[which] };
	memcpy(out->gid, n->side->gid, 16);
	if (!n->side->both || max < 2)
		return 1;
	out[1] = (struct node_socket){ .fd = node_udp_socket_open(side[!which].gid),
				       .gid_index = 2,
				       .ifindex = out->ifindex,
				       .id = UINT64_MAX };
	memcpy(out[1].gid, side[!which].gid, 16);
	return 2;
}

int node_device_get(struct node *n, u32 index, struct node_config *out)
{
	if (index != 0)
		return -ENODEV;
	memset(out, 0, sizeof(*out));
	memcpy(out->gids[1].gid, n->side->gid, 16);
	out->gids[1].ifindex = if_nametoindex("lo");
	out->gids[1].flags = NODE_GID_WIRE | NODE_GID_LINK;
	return 0;
}

bool node_slot_is_wire_only(struct node *n, u32 slot)
{
	return n->side->wire_slot != 0 && (slot == 0 || slot == n->side->wire_slot);
}

/* ---- in the engine's place ---- */

static inline void side_log_receive(void *user, struct path_dest *from, const struct pkt *p,
			const void *payload)
{
	struct side *s = user;

	assert_true(s->count < LOG_PACKETS);
	assert_true(p->length <= LOG_BYTES);
	s->got[s->count] = *p;
	memcpy(s->data[s->count], payload, p->length);
	memcpy(s->sgid, p->sgid, 16);
	memcpy(s->dgid, p->dgid, 16);
	s->from = from;
	s->count++;
}

static inline bool side_log_awaits(void *user, const struct path_dest *from, const struct pkt *p)
{
	struct side *s = user;

	s->strangers++;
	return !s->deaf;
}

static inline void side_log_batch_end(void *user, struct path_dest *from, bool idle)
{
	struct side *s = user;

	s->batches++;
}

static inline void side_log_dest(void *user, struct path_dest *dest)
{
}

static const struct path_user log_user = { .receive = side_log_receive,
					   .awaits = side_log_awaits,
					   .batch_end = side_log_batch_end,
					   .writable = side_log_dest,
					   .dead = side_log_dest };

/* ---- the world ---- */

/* An address of this test's own: others may run beside it. */
static inline void side_gid(u8 gid[16], u8 last)
{
	u32 pid = (u32)getpid();

	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = 127;
	gid[13] = (u8)(100 + pid % 100);
	gid[14] = (u8)(pid / 100);
	gid[15] = last;
}

static inline void side_open(int i, u32 slot)
{
	struct side *s = &side[i];
	struct udp_config cfg = { .node = &nodes[i],
				  .counters = s->counters,
				  .lanes = UDP_LANES,
				  .connected_sockets = 8,
				  .ticking = &s->ticking,
				  .sleepers = &s->sleepers };
	int err;

	memset(s, 0, sizeof(*s));
	side_gid(s->gid, (u8)(2 + i));
	s->udp = udp_create(&cfg, &err);
	assert_non_null(s->udp);
	s->path = udp_path(s->udp);
	s->path->user_ops = &log_user;
	s->path->user = s;
	assert_int_equal(udp_slot_own(s->udp, slot), 0);
	assert_true(udp_has_source(s->udp, s->gid));
}

static inline int setup(void **state)
{
	side_open(0, SLOT_A);
	side_open(1, SLOT_B);
	return 0;
}

static inline int teardown(void **state)
{
	for (int i = 0; i < 2; i++) {
		udp_destroy(side[i].udp);
		close(node_fd[i]);
		node_fd[i] = -1;
	}
	return 0;
}

static inline struct path_dest *dest_to(struct side *from, struct side *to, u32 qpn)
{
	struct path_av av = { .hop_limit = 64 };

	memcpy(av.sgid, from->gid, 16);
	memcpy(av.dgid, to->gid, 16);
	return from->path->ops->dest_get(from->path, &av, qpn);
}

static inline struct path_dest *dest_by(struct side *from, const u8 dgid[16], u32 qpn, u16 sport)
{
	struct path_av av = { .hop_limit = 64, .sport = sport };

	memcpy(av.sgid, from->gid, 16);
	memcpy(av.dgid, dgid, 16);
	return from->path->ops->dest_get(from->path, &av, qpn);
}

static inline u32 side_qpn_of(u32 slot, u32 index)
{
	return slot << NODE_INDEX_BITS | index;
}

static inline struct pkt packet(u32 qpn, u32 psn, u32 length)
{
	return (struct pkt){ .opcode = PKT_SEND_ONLY,
			     .qp_type = IBV_QPT_RC,
			     .dqpn = qpn,
			     .psn = psn,
			     .length = length };
}

static inline void pattern(u8 *to, u32 length, u32 seed)
{
	for (u32 i = 0; i < length; i++)
		to[i] = (u8)(i * 7 + seed * 13 + (i >> 8));
}

static inline int send_one(struct side *s, struct path_dest *d, u32 psn, u32 length)
{
	u8 data[4096];
	struct iovec iov = { data, length };
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), psn, length);

	pattern(data, length, psn);
	return s->path->ops->send(d, &p, &iov, length != 0);
}

/* Polls until so many packets have come, or no more come for a second. */
static inline void receive(struct side *s, u32 count)
{
	struct pollfd p = { .fd = udp_wait_fd(s->udp), .events = POLLIN };

	while (s->count < count && poll(&p, 1, 1000) > 0) {
		udp_look(s->udp);
		s->path->ops->poll(s->path, 1000, false);
	}
	assert_int_equal(s->count, count);
}

static inline void check_packet(const struct side *s, u32 i, u32 psn, u32 length)
{
	u8 data[4096];

	pattern(data, length, psn);
	assert_int_equal(s->got[i].psn, psn);
	assert_int_equal(s->got[i].length, length);
	assert_memory_equal(s->data[i], data, length);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
