/* shm_priv.h: inside the shm room.
 *
 *   shm.c     the path's table: destinations, sending, receiving
 *   link.c    a link's life               ring.c   packets through shared memory
 *   direct.c  one-sided operations by the initiator alone, and the target's wait for them
 *   board.c   what a process shows peers  reach.c  maps of a peer's memory file
 *   drive.c   whether a peer's engine is faster than the kernel
 *   space.c   copies by the kernel        tap.c    records what a link sends during a capture
 *   traffic.c what has crossed the ports of a process
 */
#ifndef PATH_SHM_SHM_PRIV_H
#define PATH_SHM_SHM_PRIV_H

#include "capture/capture.h"
#include "path/shm/ring.h"
#include "path/shm/shm.h"
#include "path/shm/space.h"

enum {
	SHM_LINKS = 1024,
	SHM_GENERAL = 1, /* QP1 */
	/* Each poll looks at so many links, those that were heard of last. */
	SHM_WARM = 16,
	/* Every other one has its turn: a poll looks at one for each so many ns that have
	 * passed. */
	SHM_COLD_NS = 40,
};

enum link_state {
	LINK_ASKING,  /* its owner is being resolved: send() returns -EAGAIN */
	LINK_ABSENT,  /* the slot has no owner: send() returns -ENETUNREACH and requests it again */
	LINK_NOWHERE, /* never has an owner */
	LINK_UP,
	LINK_ALIAS, /* a further slot of a process that has a link: `real` */
	LINK_DEAD,
};

/* A bit beside LINK_UP, so that sending tests both at once: a capture runs. */
enum { LINK_WATCHED = 0x40 };

/* What is known of a peer's polling threads, and what was left to its engine (drive.c). Hints. */
struct shm_drive {
	u32 seen;    /* board.drives at the last look */
	u64 look_ns; /* clock: that look */
	u64 on_ns;   /* clock: the last look that found it moving; 0: the last did not */
	u32 copies;  /* in a row, one right after another */
	u64 next_ns; /* clock: the last of them, or of what was left instead */
	u64 alive_ns; /* clock: the peer's process was not stopped */
	/* of what was left last: */
	u64 press_ns;	 /* clock */
	u32 rung;	 /* shm_link.rung before; else it was rung for it */
	u32 polls;	 /* of this process' threads that found nothing */
	u32 pressed;	 /* board.drives since when its polls count */
	u64 look_for_ns; /* clock: since when the peer's threads are waited for; 0: no look yet */
	/* the account: */
	s32 credit; /* in copies */
	u32 vain;   /* how often it was overdrawn in a row */
	u32 shy;    /* so many operations are copied first */
} OWNED_BY(nobody : atomic);

/* One other process, or a slot whose owner is not known yet. */
struct shm_link {
	struct path_dest dest GUARDS_ITSELF; /* first */
	struct shm *shm FIXED;
	/* enum link_state, LINK_WATCHED; stored with release, loaded with acquire */
	u32 state OWNED_BY(nobody: atomic);
	u32 refs OWNED_BY(shm.lock);
	u32 slot FIXED; /* the slot that was requested */
	/* LINK_ALIAS; stored before the state */
	struct shm_link *real WRITTEN_UNDER(shm.poll_lock, shm.lock);
	/* list of the aliases of an open link */
	struct shm_link *next_alias OWNED_BY(shm.poll_lock);
	struct list_head node OWNED_BY(shm.lock); /* on shm->asking or shm->dead */
	u64 asked_ns ATOMIC_ONLY; /* clock: the last request */
	/* 0, or why the peer has refused it; stored before LINK_DEAD */
	int refusal WRITTEN_UNDER(shm.poll_lock);
	bool self FIXED;
	/* the slot's process takes no packets here but those that processes hand to each other */
	bool wire_only ATOMIC_ONLY;
	/* follows from it and the state: dest_get has more to ask than whether there is a link */
	bool must_look ATOMIC_ONLY;
	bool is_warm OWNED_BY(shm.poll_lock);
	u32 tail_seen OWNED_BY(shm.poll_lock); /* rx.tail when it was last judged as warm */
	/* What its opener sets is stored before LINK_UP, and stays until the link is buried. */
	u64 process OWNED_BY(its opener);
	pid_t pid OWNED_BY(its opener);
	/* [1]: -1 if spare descriptors were few; [0] serves */
	int bell_fd[2] OWNED_BY(its opener);
	int pid_fd OWNED_BY(its opener, then the engine thread); /* that closes it at a death */
	/* the peer's address space, space.h; -1: at most its memory file is reached */
	int space_fd OWNED_BY(its opener);
	struct space_owner owner GUARDS_ITSELF; /* of space_fd */
	bool direct OWNED_BY(its opener); /* the peer's memory is reachable, or some of it */
	bool expected ATOMIC_ONLY;	  /* shm_expect was called for it, or for an alias */
	/* its memory file; NULL: not opened. Stored with release; other threads load it with
	 * acquire. reach.h */
	struct reach *reach OWNED_BY(the engine thread);
	/* the slot and length to be mapped; 0: none */
	u64 want_slot OWNED_BY(nobody: atomic), want_length OWNED_BY(nobody: atomic);
	/* maps for the regions that it shows are requested */
	bool want_shown OWNED_BY(nobody: atomic);
	bool shown_none OWNED_BY(nobody: atomic); /* mapping those has failed: not again */
	bool reach_none OWNED_BY(nobody: atomic); /* the file cannot be mapped */
	const struct board *board OWNED_BY(its opener);
	struct ring_pair *pair OWNED_BY(its opener);
	struct ring_tx tx GUARDS_ITSELF;
	struct ring_rx rx OWNED_BY(shm.poll_lock);
	/* the doorbell word that was last answered by a ring; racy by design, a lost update rings
	 * twice */
	u32 rung OWNED_BY(nobody: atomic);
	struct shm_drive drive GUARDS_ITSELF;
};

struct shm {
	struct path path FIXED; /* first */
	struct shm_config cfg FIXED;
	/* one conversation with the node at a time; held across it */
	struct lock resolve_lock ONE_AT_A_TIME;
	struct lock poll_lock ACQUIRED_AFTER(resolve_lock); /* the receiver */
	struct lock lock ACQUIRED_AFTER(poll_lock);
	struct shm_link *self FIXED, *nowhere FIXED;
	struct shm_link *slots[NODE_SLOTS] GUARDED_BY(lock);
	struct list_head asking GUARDED_BY(lock);
	struct list_head dead GUARDED_BY(lock);
	u32 count WRITTEN_UNDER(poll_lock, lock); /* links[] in use */
	bool watched WRITTEN_UNDER(poll_lock, lock); /* for links to come */
	bool presses ATOMIC_ONLY;		     /* hint: some link's dest.presses */
	bool reach_wanted ATOMIC_ONLY; /* some link has a want_slot or want_shown */
	u32 stuck ATOMIC_ONLY; /* drains that ended at their limit */
	u32 refusals ATOMIC_ONLY; /* pairs that could not be opened, counted */
	u32 spare_fds ATOMIC_ONLY;   /* links' descriptors that they can do without */
	u32 ring_spare ATOMIC_ONLY;  /* bytes that the links' rings may still grow by */
	/* the links that each pass looks at, and where the next pass begins */
	u32 warm_count GUARDED_BY(poll_lock), turn GUARDED_BY(poll_lock);
	struct shm_link *warm[SHM_WARM] GUARDED_BY(poll_lock);
	bool has_cold ATOMIC_ONLY; /* not all links are warm */
	u32 hand GUARDED_BY(poll_lock); /* index in warm[]: the first to be judged for its place */
	u32 cold_at GUARDED_BY(poll_lock); /* index in links[]: the next of the others' turns */
	u64 cold_ns GUARDED_BY(poll_lock); /* clock: the last of those turns */
	struct shm_link *links[SHM_LINKS] WRITTEN_UNDER(poll_lock, lock);
};

/* A new link is warm while there is room. */
void shm_add_warm(struct shm *shm, struct shm_link *l) REQUIRES(shm->poll_lock);
/* A descriptor that a link can do without: all links have three sixteenths of the process' soft
 * limit for those, and the rest is the application's. False: too many. */
bool link_take_spare(struct shm *shm);
void link_give_spare(struct shm *shm);
/* Calls fn for every link in any state, with a reference and without a lock. */
void shm_each_link(struct shm *shm, void (*fn)(struct shm_link *l, void *arg), void *arg);
/* The engine's next round asks the node whose the link's slot is. */
void shm_ask(struct shm *shm, struct shm_link *l) REQUIRES(shm->lock);
struct shm_link *link_create(struct shm *shm, u32 slot);
/* Maps the rings and the board from the node and opens the peer's address space. Takes the
 * descriptors. */
int link_open(struct shm_link *l, struct node_peer *peer);
void link_close(struct shm_link *l);
/* Stops watching its pidfd. */
void link_unwatch(struct shm_link *l);
/* Has the peer's process ended, or is it about to? The node may say that it is gone when its
 * sockets have closed, before the pidfd does. */
bool link_has_died(const struct shm_link *l);
/* `word`: enum link_state, LINK_WATCHED. */
void link_set_state(struct shm_link *l, u32 word);
/* Sets LINK_UP with the bit of the capture. */
void link_set_open(struct shm_link *l);
int link_direct(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		int iovcnt);
u32 link_writes(struct path_dest *d, u32 sqpn, u32 dqpn, struct path_grant *g,
		const struct path_write *w, u32 n);
u32 link_writes_joined(struct path_dest *d, u32 sqpn, u32 dqpn, const struct path_write *w, u32 n);
int link_atomic(struct path_dest *d, const struct path_target *t, struct path_atomic *a);
bool link_peer_end(struct path_dest *d, u32 sqpn, u32 dqpn, struct path_end *out);
bool link_reaches(struct path_dest *d, const struct path_target *t);
bool link_pullable(struct path_dest *d);
int link_pull(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
	      const struct iovec *ours, int m, u64 bytes);
/* Rings if the peer has armed its doorbell since the last ring. */
void link_ring_bell(struct shm_link *l);
/* Wakes the peer's engine, whether it has armed or not. */
void link_ring_anyway(const struct shm_link *l);
/* Tells whether the peer's board shows this queue pair. */
bool link_peer_has_qp(const struct shm_link *l, u32 qpn, u32 type);
/* Returns the board's entry for a number, whichever queue pair that shows; NULL: the board's owner
 * cannot own it. */
const struct board_qp *link_find_qp(const struct board *b, u32 qpn);
/* Opens the peer's address space, if this process is permitted to. If not, maps of the peer's
 * memory file may still be. */
void link_open_space(struct shm_link *l);
/* Tells whether the slot's process takes no packets but by another path. */
bool link_slot_is_wire_only(const struct shm *shm, u32 slot);
/* Asks the node for the owner of l->slot and opens the link. Engine's thread or a verb that may
 * sleep. */
int link_resolve(struct shm_link *l);

static inline struct shm_link *link_of(struct path_dest *d)
{
	return container_of(d, struct shm_link, dest);
}

static inline void link_set_expected(struct shm_link *l)
{
	__atomic_store_n(&l->expected, true, __ATOMIC_RELAXED);
}

/* Tells whether the peer may reach this process' memory directly. */
static inline bool link_is_expected(const struct shm_link *l)
{
	return __atomic_load_n(&l->expected, __ATOMIC_RELAXED);
}

static inline u32 link_word(const struct shm_link *l)
{
	return __atomic_load_n(&l->state, __ATOMIC_ACQUIRE); /* pairs with link_set_state */
}

static inline enum link_state link_state(const struct shm_link *l)
{
	return (enum link_state)(link_word(l) & ~(u32)LINK_WATCHED);
}

/* Tells whether the owner of its slot is known, and stays so. */
static inline bool link_is_settled(const struct shm_link *l)
{
	enum link_state state = link_state(l);

	return state != LINK_ASKING && state != LINK_ABSENT;
}

/* The link of a destination, behind an alias. */
static inline struct shm_link *link_real(struct path_dest *d)
{
	struct shm_link *l = link_of(d);

	return unlikely(link_state(l) == LINK_ALIAS) ? l->real : l;
}

/* Tells whether it is open and no capture runs. */
static inline bool link_is_plain(const struct shm_link *l)
{
	return link_word(l) == LINK_UP;
}

static inline bool link_is_watched(const struct shm_link *l)
{
	return (link_word(l) & LINK_WATCHED) != 0;
}

/* ---- drive.c ---- */

/* Tells whether a one-sided operation on memory that is not mapped here should go as a packet. If
 * so the caller sends it at once. */
bool drive_is_faster(struct shm_link *l, const struct path_target *t);
/* `more` operations have shared the system call of one that was copied. For the account of a peer
 * that is slow each is a copy; in a row of copies they are one. */
void drive_joined(struct shm_link *l, u32 more);
/* As path_ops.answered. */
void link_answered(struct path_dest *d, u32 n, u64 ns, bool more);
/* `n` operations that were left have ended, the last after so long. */
void drive_answered(struct shm_link *l, u32 n, u64 ns, bool more);
/* For a link with dest.presses, in a poll that found nothing: the peer's doorbell is rung if its
 * threads poll no more. */
void drive_look(struct shm_link *l);
/* For all links, in the last poll before a sleep. */
void drive_look_all(struct shm *shm) REQUIRES(shm->poll_lock);

/* ---- tap.c: the capture of a link ---- */

struct tap {
	struct capture_hold hold;
	struct capture_packet packet;
	struct pkt pkt;
} OWNED_BY(the thread between tap_begin and tap_end);

/* Pushes a packet and records it. */
int tap_push(struct shm_link *l, const struct pkt *p, const struct iovec *iov, int iovcnt);
/* Called around a one-sided copy between the target and the pieces. */
void tap_begin(struct shm_link *l, const struct path_target *t, struct tap *tap);
void tap_end(struct shm_link *l, struct tap *tap, const struct iovec *iov, int iovcnt, bool went);

#endif
