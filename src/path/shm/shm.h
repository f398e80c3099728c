/* shm.h: the path between processes of one node, and from a process to itself.
 *
 * A link is a pair of rings with one other process (or with this one); every slot of the QPN space
 * that the process owns leads to its link. Links are made on first use through the node. Promise:
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
	struct node *node;	 /* NULL: only this process */
	u64 process;		 /* this process' number */
	int epoll_fd;		 /* where pidfds of peers are watched: data.ptr is the link */
	bool direct;		 /* reach peers' memory directly where they allow it */
	struct capture *capture; /* NULL: nothing is ever captured */
	void (*kick)(void *arg); /* has the engine's thread call shm_background soon */
	void *kick_arg;
};

struct shm *shm_create(const struct shm_config *cfg, int *err);
/* In a forked child: unmaps nothing (the maps were not inherited), closes the descriptors,
 * frees. */
void shm_drop_in_child(struct shm *shm);
struct path *shm_path(struct shm *shm);
/* Makes `slot` this process' own: traffic to it loops back. */
void shm_slot_own(struct shm *shm, u32 slot);
/* Another process has made a pair with this one; takes the descriptors over. 0 or a negative
 * errno (descriptors closed all the same). */
int shm_peer_new(struct shm *shm, struct node_peer *peer);
/* A pidfd fired: drains what the peer had sent, then fails what waits for it. May block. */
void shm_peer_dead(struct shm *shm, struct shm_link *link);
/* The same for a peer that left without dying, by its number. */
void shm_peer_gone(struct shm *shm, u64 process);
/* Resolves what is waiting to be resolved and buries dead links. Engine's thread; may block. */
void shm_background(struct shm *shm);

/* The port goes down or comes up; at first it is up. While it is down, send() says -ENETUNREACH and
 * direct() -EOPNOTSUPP, and packets that arrive are dropped and counted (COUNT_PORT_DOWN), from
 * this process itself as well. What is lost although send() took it is told to its sender, so that
 * the promise to be reliable stays: a dropped request, or an answer that cannot go out, has the
 * requester hear PKT_ABSENT, unless its own port is down; then it knows that much by itself. No
 * packet is being received when this returns. May block. */
void shm_set_up(struct shm *shm, bool up);

/* What is sent is captured from now on, or no more. May block. */
void shm_set_watched(struct shm *shm, bool watched);

/* Doorbell of this process. Arms it for the given waiter (0: the engine's thread, 1: a thread in
 * wait_fd); the caller polls once more before it sleeps. */
void shm_bell_arm(struct shm *shm, int which);
/* What a peer that is stopped in the middle of a direct operation may still do when it goes on. */
enum shm_left {
	SHM_LEFT_NOTHING,
	SHM_LEFT_STORES, /* stores to our memory file, where the operation found the memory */
	SHM_LEFT_WRITES, /* writes at the addresses of the key */
};

/* Waits until no peer uses key index / queue pair of ours directly (whichever matches). Bounded:
 * two seconds for all peers together, some milliseconds for those that are seen to be stopped. Says
 * what was not waited for. For mem_table.drain and modify. */
enum shm_left shm_drain(struct shm *shm, u32 key_index, u32 qpn);
/* How often that wait has ended with SHM_LEFT_STORES. */
u32 shm_stuck(const struct shm *shm);
enum { SHM_ANY_KEY = UINT32_MAX, SHM_ANY_QP = UINT32_MAX };

#endif
