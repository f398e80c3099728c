/* fork.h: what a forked child finds of the locks and the state that a process has once.
 *
 * A child has one thread. A lock that another thread of its parent held at the fork is never given
 * back there, and what it guards may be half changed. So each lock with static storage is declared,
 * in the file that defines it, as one of two kinds:
 *
 *   FORK_TAKES        no section of it waits. The fork takes it, and the child finds what it guards
 *                     whole.
 *   FORK_MAKES_ANEW   a section may wait: for another process, a peer, a callback. The fork does
 *                     not wait for it: the child makes the lock anew, and then by `child` what it
 *                     guards.
 *
 * FORK_HOOK declares what a fork does without such a lock. Locks of objects are never taken, except
 * by the hook of a list that has them all: the owner of an object makes its locks anew in the
 * child.
 *
 * Before a fork the parts run by rank, from the first to the last, each behind its lock; after it
 * from the last to the first, each before its lock is released or, in the child, made anew. So the
 * ranks are the order in which locks nest (docs/locking.md), and the child drops the lower rooms
 * first. libanyverbs and the doors have one list, in libanyverbs; a shim has its own.
 */
#ifndef BASE_FORK_H
#define BASE_FORK_H

#include <sys/types.h>

#include "base/list.h"
#include "base/lock.h"

enum fork_rank {
	/* the shim of --rsockets; none is held across a call of librdmacm */
	FORK_SHIM_SOCKS,
	FORK_SHIM_SHARE,
	FORK_SHIM_SERVICE,
	FORK_SHIM_EPOLL,
	FORK_SHIM_TABLE,
	FORK_SHIM_OPTION,
	FORK_SHIM_SILENT,
	/* anyverbsd */
	FORK_STRANGERS,
	/* librdmacm, libibverbs, libibumad */
	FORK_SLEEPER,
	FORK_RSOCKETS,
	FORK_UDP_SERVICE,
	FORK_LINGER,
	FORK_SERVICE,
	FORK_DOOR_DEVICES,
	/* libanyverbs */
	FORK_UCMA,
	FORK_UMAD_JOINING,
	FORK_CMA_START,
	FORK_SA_START,
	FORK_CM_START,
	FORK_DRIVERS,
	FORK_ADDR,
	FORK_SEAT,
	FORK_SEAT_NUMBERS,
	FORK_ADOPT, /* all memory becomes private before any other lock is taken */
	FORK_ADOPT_ENGINE,
	FORK_DEVICE_LIST,
	FORK_OLD_CONTEXTS,
	FORK_DOOR_OBJECTS,
	FORK_COUNTERS,
	FORK_SYSFS,
	FORK_UCONTEXTS,
	FORK_XRC_DOMAINS,
	FORK_DOMAINS,
	FORK_BINDS,
	FORK_STEER,
	FORK_AHS,
	FORK_CMA,
	FORK_CM,
	FORK_CM_DEVICES,
	FORK_SA,
	FORK_UMAD,
	FORK_UMAD_PORTS,
	FORK_HCA_MADS,
	FORK_HCA_WAYS,
	FORK_HCA_HOST,
	FORK_PLUG,
	FORK_SOFT_MADS,
	FORK_ROCE,
	FORK_MAD,
	FORK_WORKERS,
	FORK_CQ_POOL,
	FORK_BOARD, /* behind it no part may touch the board of the parent */
	FORK_EVENTS,
	FORK_VECTORS,
	FORK_CLIENTS,
	FORK_REGISTRY,
	FORK_XRC_TARGETS,
	FORK_BORN,
	FORK_THREADS,
	FORK_THREADS_SAID,
	FORK_MEMORY, /* before any other part runs, the child's memory is complete */
};

struct fork_part {
	enum fork_rank rank;
	bool takes;
	struct lock *lock;    /* NULL: none */
	void (*before)(void); /* NULL, here and below: nothing */
	void (*after)(void);  /* in the parent */
	void (*child)(void);
	struct list_head node;
} OWNED_BY(fork_all.lock);

/* The process that has made an object. Its number alone does not tell it from a forked child: both
 * may have the same one, in two namespaces of process numbers. */
struct fork_mark {
	pid_t pid;
	u32 forks; /* that lie between this process and the one that has loaded the library */
} FIXED;

struct fork_mark fork_mark_here(void);
/* Tells whether this process has set the mark: false in a forked child of that process. */
bool fork_is_marked_here(const struct fork_mark *mark);

/* A constructor's call, by the macros below. */
AV_EXPORT void fork_add(struct fork_part *part);
/* False: pthread_atfork was refused, and no part runs. */
bool fork_is_watched(void);

#define FORK_PART(r, ...)                                                                          \
	static struct fork_part fork_part_##r = { .rank = r, __VA_ARGS__ };                        \
	__attribute__((constructor)) static void fork_add_##r(void)                                \
	{                                                                                          \
		fork_add(&fork_part_##r);                                                          \
	}                                                                                          \
	_Static_assert(true, "")

/* Each at file scope, behind the functions that it names as `.before =`, `.after =`, `.child =`. */
#define FORK_TAKES(rank, lock, ...) FORK_PART(rank, true, lock, __VA_ARGS__)
#define FORK_MAKES_ANEW(rank, lock, ...) FORK_PART(rank, false, lock, __VA_ARGS__)
#define FORK_HOOK(rank, ...) FORK_PART(rank, false, NULL, __VA_ARGS__)

#endif
