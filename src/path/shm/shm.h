/* shm.h: the path between processes of one node, and from a process to itself.
 *
 * A link is a pair of rings with one other process (or with this one); every slot of the QPN space
 * that the process owns maps to its link. Links are made on first use through the node. Guarantees:
 * ordered, reliable, direct.
 */
#ifndef PATH_SHM_SHM_H
#define PATH_SHM_SHM_H

#include "capture/capture.h"
#include "node/node.h"
#include "path/path.h"
#include "path/shm/board.h"

struct shm;
struct shm_link;

struct shm_config {
	struct board *board;
	int bell_fd[2];
	struct node *node;	 /* NULL: this process only */
	u64 process;		 /* this process' number */
	int epoll_fd;		 /* where pidfds of peers are watched: data.ptr is the link */
	bool direct;		 /* reach peers' memory directly where they permit it */
	struct capture *capture; /* NULL: nothing is ever captured */
	void (*kick)(void *arg); /* has the engine's thread call shm_background soon */
	/* A peer's process has ended, the owner of these slots, a bit each; what it had sent was
	 * received. On the thread of shm_peer_dead or shm_peer_gone, without a lock. NULL: of no
	 * interest. */
	void (*died)(void *arg, const u64 slots[NODE_SLOTS / 64]);
	/* A MAD to QP1 of a process that has refused the link comes back. Runs as a receiver; NULL:
	 * it is dropped. */
	void (*returned)(void *arg, const struct pkt *p, const void *payload);
	void *kick_arg; /* of all three */
} OWNED_BY(the caller);

struct shm *shm_create(const struct shm_config *cfg, int *err);
/* In a forked child: closes the descriptors and frees. Unmaps nothing, since the maps were not
 * inherited. */
void shm_drop_in_child(struct shm *shm);
struct path *shm_path(struct shm *shm);
/* Makes `slot` this process' own: packets to it loop back. */
void shm_slot_own(struct shm *shm, u32 slot);
/* As node_slot_is_wire_only, and also of a slot whose process this one has a link with, where a new
 * node does not know it. Then dest_get gives no destination for what has an address. */
bool shm_slot_is_wire_only(struct shm *shm, u32 slot);
/* Another process has made a pair with this one. Takes the descriptors. 0 or a negative errno (they
 * are closed all the same). */
int shm_peer_new(struct shm *shm, struct node_peer *peer);
/* A pidfd fired: receives all that the peer had sent, then fails its connections. May block. */
void shm_peer_dead(struct shm *shm, struct shm_link *link);
/* The same for a peer that the node knows no more, by its number: it may live on, detached, or has
 * refused the link: err, a negative errno, says why. */
void shm_peer_gone(struct shm *shm, u64 process, int err);
/* Resolves links and buries dead ones. Engine's thread; may block. */
void shm_background(struct shm *shm);

/* Begins or ends the capture of sent packets. May block. */
void shm_set_watched(struct shm *shm, bool watched);

/* Arms this process' doorbell for a waiter (0: the engine's thread, 1: a thread in wait_fd). The
 * caller polls once more before it sleeps. */
void shm_bell_arm(struct shm *shm, int which);
/* Before a queue pair of this process names one of the destination's as its peer: shm_drain waits
 * for that process from then on. Does nothing for a destination of another path. */
void shm_expect(struct shm *shm, struct path_dest *d);
/* The harm that a peer can still do that is stopped in the middle of a direct operation. */
enum shm_left {
	SHM_LEFT_NOTHING,
	SHM_LEFT_STORES, /* stores to this process' memory file, where the memory was */
	SHM_LEFT_WRITES, /* writes at the key's addresses */
};

/* Waits until no peer uses key index / queue pair of this process directly (either match). Bounded:
 * two seconds for all peers together, some milliseconds for peers that are seen to be stopped, and
 * for no peer that shm_expect was not told of, or that no access right permits what it announces.
 * Returns what may still happen. For mem_table.drain and modify. */
enum shm_left shm_drain(struct shm *shm, u32 key_index, u32 qpn);
/* Returns how often such a wait has ended with SHM_LEFT_STORES. */
u32 shm_stuck(const struct shm *shm);
enum { SHM_ANY_KEY = UINT32_MAX, SHM_ANY_QP = UINT32_MAX };

#endif
