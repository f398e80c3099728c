/* dgram.h: datagram rsockets. A UDP socket, which is also the rsocket's number, has the address and
 * carries the messages by which two rsockets learn each other's queue pair (dgram_format.h). A
 * datagram to a peer that is not known yet travels in such a message; each later one is a UD
 * message.
 *
 *   dgram.c         the operations of struct rsocket_ops
 *   dgram_qp.c      UD queue pairs, one per local address
 *   dgram_peer.c    peers: what is known of each address
 *   dgram_format.c  bytes
 *   udp.c           the UDP sockets, and the thread that reads them
 */
#ifndef RSOCKET_DGRAM_H
#define RSOCKET_DGRAM_H

#include <rdma/rdma_cma.h>

#include "cq.h"
#include "dgram_format.h"
#include "rsocket.h"

enum {
	DGRAM_PEERS = 4096, /* beyond that the one unused for longest is forgotten */
	DGRAM_BUCKETS = 256,
	DGRAM_QPS = 64, /* local addresses of one rsocket */
};

struct dgram;

/* A datagram that waits for the application: in a receive buffer, or in memory of its own. */
struct dgram_item {
	struct dgram_qp *qp; /* NULL: `data` is malloc'ed */
	u32 slot;	     /* of qp */
	u32 length;
	u8 *data;
	union dgram_addr from;
} OWNED_BY(dgram.lock);

/* A UD queue pair, its CQ and its buffers, for one local address. */
struct dgram_qp {
	struct list_head node OWNED_BY(dgram.lock);
	/* as in the headers: the family of the UDP socket, its port */
	union dgram_addr local FIXED;
	struct rdma_cm_id *id FIXED;
	struct rsocket_cq cq FIXED;
	struct ibv_mr *mr FIXED;
	u8 *memory FIXED; /* receive slots, send slots behind them */
	u32 slot_bytes FIXED; /* of a receive slot: a GRH and the largest packet */
	u32 receives FIXED, sends FIXED; /* slots */
	u32 room FIXED;	      /* the largest UD message, header included */
	u32 inline_bytes FIXED;
	u8 gid_index FIXED;
	u32 gids FIXED; /* entries of the port's table, 256 at most */
	bool infiniband FIXED; /* its port is one of InfiniBand, and no address is a GID */
	/* what peers are told: the GID; of an InfiniBand port its address, as a GID */
	u8 gid[16] OWNED_BY(dgram.lock);
	u8 header[DGRAM_HEADER_BYTES] FIXED;
	u32 header_bytes FIXED;
	u32 *idle OWNED_BY(dgram.lock); /* send slots */
	u32 idle_count OWNED_BY(dgram.lock);
};

/* An address that has been sent to or heard from. */
struct dgram_peer {
	struct list_head node, recent; /* its bucket; dgram.recent */
	union dgram_addr addr;
	struct dgram_qp *qp; /* ours that reaches it */
	struct ibv_ah *ah;   /* NULL: not known yet; the UDP sockets carry the datagrams */
	u32 qpn;
	u8 gid[16];
	u64 retry_ns; /* no address handle could be made: not tried again before */
} OWNED_BY(dgram.lock);

struct dgram {
	struct rsocket rs GUARDS_ITSELF; /* first */
	struct list_head node OWNED_BY(udp_service.lock);
	int family FIXED;
	struct lock lock;
	struct list_head qps GUARDED_BY(lock);
	u32 qp_count GUARDED_BY(lock);
	struct list_head buckets[DGRAM_BUCKETS] GUARDED_BY(lock); /* struct dgram_peer */
	struct list_head recent GUARDED_BY(lock); /* the same, the last used first */
	u32 peer_count GUARDED_BY(lock);
	struct dgram_peer *connected GUARDED_BY(lock); /* NULL: to nobody */
	struct dgram_item *items GUARDED_BY(lock);     /* a ring of receive_queue */
	u32 head GUARDED_BY(lock), count GUARDED_BY(lock);
	u64 arrived ATOMIC_ONLY; /* datagrams so far; changes under the lock */
	u32 receive_queue GUARDED_BY(lock), send_queue GUARDED_BY(lock); /* datagrams */
	u32 receive_bytes GUARDED_BY(lock), send_bytes GUARDED_BY(lock); /* SO_RCVBUF, SO_SNDBUF */
	u32 inline_bytes GUARDED_BY(lock);
	u16 port GUARDED_BY(lock); /* of the UDP socket, big-endian; 0: not bound */
	int error GUARDED_BY(lock); /* what the UDP socket was told (ECONNREFUSED), once */
	bool no_receive GUARDED_BY(lock), no_send GUARDED_BY(lock); /* rshutdown */
	bool armed GUARDED_BY(lock);   /* completions are told */
	bool started GUARDED_BY(lock); /* the queues' sizes are final */
	bool closing GUARDED_BY(lock);
};

static inline struct dgram *dgram_of(struct rsocket *rs)
{
	return (struct dgram *)rs;
}

/* ---- dgram.c --------------------------------------------------------------------------------- */

/* A datagram has come in a receive slot of `qp`, or in malloc'ed `data` (qp NULL). False: there is
 * no room for it, or it is not from whom the rsocket is connected to; slot and memory stay the
 * caller's. */
bool dgram_arrived(struct dgram *d, const struct dgram_item *item) REQUIRES(d->lock);
/* The largest datagram to a peer through `qp`. */
u32 dgram_limit(const struct dgram *d, const struct dgram_qp *qp);

/* ---- dgram_qp.c ------------------------------------------------------------------------------ */

/* The queue pair at a local address, made on demand. 0 or a negative errno. May block: it makes
 * queue pairs. */
int dgram_qp_get(struct dgram *d, const union dgram_addr *local, struct dgram_qp **out)
	REQUIRES(d->lock);
/* Takes what has completed on all of them, or on those that have told something since they were
 * armed. */
void dgram_qps_poll(struct dgram *d, bool all) REQUIRES(d->lock);
/* The next completion of each is told. */
void dgram_qps_arm(struct dgram *d) REQUIRES(d->lock);
void dgram_qps_destroy(struct dgram *d) REQUIRES(d->lock);
/* Some requests to send are not complete. */
bool dgram_qps_busy(struct dgram *d) REQUIRES(d->lock);
/* Where the datagram of a slot begins, header included. */
u8 *dgram_qp_slot(const struct dgram_qp *qp, u32 slot);
/* Gives a slot back to the queue pair. */
void dgram_qp_receive(struct dgram_qp *qp, u32 slot);
/* Copies the application's parts one behind the other. 0 or -EFAULT. */
int dgram_gather(u8 *to, const struct iovec *iov, int count);
/* Sends `bytes` bytes of `iov` to a peer that is known. 0, -EAGAIN: no slot is idle. */
int dgram_qp_send(struct dgram_qp *qp, const struct dgram_peer *peer, const struct iovec *iov,
		  int count, size_t bytes);
/* The queue pair is to reach a peer: what peers are told names its port to other hosts, too. May
 * block on InfiniBand. */
void dgram_qp_name(struct dgram_qp *qp, const union dgram_addr *peer);
/* Whether a queue pair of this host may tell the GID (dgram_qp.gid): the port has it, or a port of
 * another node may have it, or it may be the address of an InfiniBand port. */
bool dgram_qp_has_near(const struct dgram_qp *qp, const u8 gid[16]);
/* An address handle for what a peer has told of itself (dgram_qp.gid). NULL: there is no way. May
 * block on InfiniBand: asks the SA. */
struct ibv_ah *dgram_qp_ah(struct dgram_qp *qp, const u8 gid[16]);

/* ---- dgram_peer.c ---------------------------------------------------------------------------- */

void dgram_peers_init(struct dgram *d) REQUIRES(d->lock);
/* The peer of an address. A new one is reached through the queue pair at `local`, or, if that is
 * NULL, at the address that the host's routes prefer. 0 or a negative errno. */
int dgram_peer_get(struct dgram *d, const union dgram_addr *addr, const union dgram_addr *local,
		   struct dgram_peer **out) REQUIRES(d->lock);
/* A message of its UDP socket says where the peer's queue pair is; ignored if that is elsewhere
 * than the peer. May block, as dgram_qp_ah. */
void dgram_peer_learn(struct dgram_peer *peer, const struct dgram_hello *hello);
void dgram_peers_destroy(struct dgram *d) REQUIRES(d->lock);

/* ---- udp.c: 0 or a negative errno ------------------------------------------------------------ */

/* A UDP socket; its messages say at which local address they came. */
int udp_open(int family);
int udp_bind(int fd, const struct sockaddr *addr, socklen_t len);
int udp_connect(int fd, const struct sockaddr *addr, socklen_t len);
int udp_name(int fd, bool peer, struct sockaddr *addr, socklen_t *len);
int udp_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int udp_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
/* The local address of a socket: its own, or, if that is the wildcard, what routes to `to` prefer.
 * With the socket's port. */
int udp_source(int fd, const union dgram_addr *to, union dgram_addr *out);
/* Sends a message, from `local` unless NULL, with a datagram of `bytes` bytes behind it. -EAGAIN:
 * the socket's buffer is full. */
int udp_send(int fd, const struct dgram_hello *hello, const union dgram_addr *to,
	     const union dgram_addr *local, const u8 *data, size_t bytes);
/* Takes a datagram: its size (more than `size`: it was cut), where it came from, and the address
 * that it came to, whose port is 0. Never blocks: -EAGAIN. */
ssize_t udp_receive(int fd, void *to, size_t size, union dgram_addr *from,
		    union dgram_addr *local);

/* From now on the thread reads the socket. */
int udp_service_add(struct dgram *d);
/* From now on it does not touch it. */
void udp_service_remove(struct dgram *d);

#endif
