/* rsocket.h: sockets over RDMA: what the kinds of rsockets (stream, datagram) share.
 *
 * An rsocket is found by its number, which is a descriptor that the rsocket owns. The exported
 * calls (calls.c) look it up, hold it while they run, and go through its table of operations.
 * Inside errors are negative errno; calls.c makes -1 and errno of them. docs/rsockets.md.
 *
 *   calls.c     the exported r* calls
 *   table.c     number -> rsocket; references
 *   wait.c      threads that sleep until an rsocket changes
 *   cq.c        completion queues that wake them
 *   device.c    registered buffers
 *   poll.c      rpoll, rselect
 *   repoll.c    repoll_create, repoll_ctl, repoll_wait
 *   config.c    the defaults of /etc/rdma/rsocket
 *   stream*.c   SOCK_STREAM: stream.h
 *   iomap.c     memory of streams that the peer writes to by itself
 *   dgram*.c    SOCK_DGRAM: dgram.h
 */
#ifndef RDMACM_RSOCKET_H
#define RDMACM_RSOCKET_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/list.h"
#include "base/lock.h"

struct rsocket;

/* Numbers of rsockets begin here, where the process may have such. rdma-core's librspreload gives a
 * program a descriptor of its own for each rsocket, opened before it. Its select() and poll() take
 * an rsocket for the descriptor of the same number if that is the lower one. A thread of the
 * library that opens something at that moment makes it so. */
enum { RSOCKET_NUMBER_FIRST = 256 };

/* ---- wait.c: sleeping until something changes ------------------------------------------------ */

struct ib_sleep_ops;

/* A thread that sleeps, on its stack. */
struct sleeper {
	u32 woken ATOMIC_ONLY; /* the futex: 1 once something has changed */
	/* the thread's eventfd, which is written as well; -1: the thread is on the futex */
	int fd FIXED;
	const void *thread FIXED; /* names it: what it does itself needs no write */
	const struct ib_sleep_ops *ops FIXED; /* NULL: it does not drive the device */
	bool claimed FIXED; /* it drives the device while it sleeps */
};

/* A sleeper's place at one rsocket. */
struct waiter {
	struct list_head node OWNED_BY(wait_queue.lock);
	struct sleeper *who OWNED_BY(wait_queue.lock);
	bool hit OWNED_BY(wait_queue.lock); /* this rsocket has changed */
};

struct wait_queue {
	struct lock lock;
	struct list_head waiters GUARDED_BY(lock);
	u32 count ATOMIC_ONLY; /* of waiters */
};

void wait_queue_init(struct wait_queue *q);
/* Whatever changes after this call, and is followed by wait_wake, wakes the sleeper. */
void wait_join(struct wait_queue *q, struct waiter *w, struct sleeper *who);
/* True: wait_wake has run since wait_join. */
bool wait_leave(struct wait_queue *q, struct waiter *w);
/* Wakes all waiters. Any context; never blocks. */
void wait_wake(struct wait_queue *q);
/* What a thread sleeps for. */
enum sleep_kind {
	SLEEP_CALL,   /* one rsocket, by sleeper_sleep */
	SLEEP_POLL,   /* any, by sleeper_poll */
	SLEEP_LISTEN, /* listeners alone, whose descriptors tell all, by sleeper_poll */
};
/* Begins the sleeps of this thread, which drives the device meanwhile unless another thread does:
 * a packet then wakes it without a detour. One that listens does not: packets of connections would
 * wake it for nothing. 0, or a negative errno (not of SLEEP_CALL). sleeper_end follows. */
int sleeper_begin(struct sleeper *s, enum sleep_kind kind);
void sleeper_end(struct sleeper *s);
/* Forget the past: wakes before this call count no more. */
void sleeper_reset(struct sleeper *s);
bool sleeper_is_woken(const struct sleeper *s);
/* Any context; never blocks. */
void sleeper_wake(struct sleeper *s);
/* Drives one rsocket, and through it the device, for a short while, or until woken: true. */
bool sleeper_spin(const struct sleeper *s, struct rsocket *rs);
/* Sleeps until woken, or so many ns (0: without a limit), or not at all, as it pleases. 0,
 * -ETIMEDOUT, -EINTR: by a signal that does not restart calls. May block. A cancellation point, as
 * sleeper_poll is: each caller gives back what it has by CLEANUP, and holds no lock. */
int sleeper_sleep(struct sleeper *s, u64 ns);
/* Sleeps until woken, until one of the descriptors is ready, or so many ns (0: without a limit),
 * or not at all, as it pleases: the caller looks at everything again. `fds` has SLEEPER_FDS places
 * behind the `count` of the caller's. 0 or -EINTR. */
enum { SLEEPER_FDS = 3 };
int sleeper_poll(struct sleeper *s, struct pollfd *fds, nfds_t count, u64 ns);
/* After -EINTR: a call of the kernel that may be restarted would go on. */
bool sleeper_restarts(void);

/* ---- the object ------------------------------------------------------------------------------ */

/* All operations may run on several threads at once. `flags`: MSG_*. A missing operation is
 * -EOPNOTSUPP. */
struct rsocket_ops {
	int (*bind)(struct rsocket *rs, const struct sockaddr *addr, socklen_t len);
	int (*listen)(struct rsocket *rs, int backlog);
	/* The new rsocket's number. */
	int (*accept)(struct rsocket *rs, struct sockaddr *addr, socklen_t *len);
	int (*connect)(struct rsocket *rs, const struct sockaddr *addr, socklen_t len);
	int (*shutdown)(struct rsocket *rs, int how);
	/* `addr` NULL: none. */
	ssize_t (*send)(struct rsocket *rs, const struct iovec *iov, int count, int flags,
			const struct sockaddr *addr, socklen_t len);
	ssize_t (*recv)(struct rsocket *rs, const struct iovec *iov, int count, int flags,
			struct sockaddr *addr, socklen_t *len);
	/* rgetsockname, rgetpeername. */
	int (*name)(struct rsocket *rs, bool peer, struct sockaddr *addr, socklen_t *len);
	int (*setsockopt)(struct rsocket *rs, int level, int name, const void *value,
			  socklen_t len);
	int (*getsockopt)(struct rsocket *rs, int level, int name, void *value, socklen_t *len);
	/* The revents that hold now. `look`: drives the device even if nothing has been told. */
	short (*poll)(struct rsocket *rs, short events, bool look);
	/* From now on whatever makes poll() say more calls wait_wake, too. */
	void (*arm)(struct rsocket *rs);
	/* A descriptor whose POLLIN is a reason to look as well; -1: none. */
	int (*poll_fd)(struct rsocket *rs);
	/* Another number once something to receive, or an end, has come. No operation: calls that
	 * are told EAGAIN (rsocket.refused) are the only edges. */
	u64 (*arrivals)(struct rsocket *rs);
	off_t (*iomap)(struct rsocket *rs, void *buf, size_t len, int prot, int flags,
		       off_t offset);
	int (*iounmap)(struct rsocket *rs, void *buf, size_t len);
	ssize_t (*iowrite)(struct rsocket *rs, const void *buf, size_t count, off_t offset,
			   int flags);
	/* Out of the table already. Ends the connection; wakes threads that wait. May block. */
	void (*close)(struct rsocket *rs);
	/* rclose has let go of the rsocket of this number: returns once no thread of the library's
	 * own holds it, so that only the application's calls keep the number taken. May block. No
	 * operation: no such thread. */
	void (*leave)(int fd);
	/* Nobody uses it any more: frees it, and its number. */
	void (*free)(struct rsocket *rs);
	/* In a forked child, of an rsocket of the parent: gives back the number, and no more. */
	void (*forget)(struct rsocket *rs);
} FIXED;

/* The first member of every kind of rsocket. */
struct rsocket {
	const struct rsocket_ops *ops FIXED;
	int type FIXED; /* SOCK_STREAM, SOCK_DGRAM */
	int fd FIXED;	/* its number */
	int flags ATOMIC_ONLY; /* as of F_SETFL */
	u64 serial FIXED;      /* no other rsocket has had it */
	bool in_set ATOMIC_ONLY; /* a set of repoll_create has had it */
	/* Calls that were told EAGAIN since then: to receive or accept, to send. */
	u32 refused[2] ATOMIC_ONLY;
	struct wait_queue waiters GUARDS_ITSELF;
};

enum rsocket_way { RSOCKET_IN, RSOCKET_OUT }; /* of rsocket.refused */

/* New rsockets, not in the table yet; NULL and a negative errno in *err. `domain`: AF_INET,
 * AF_INET6, of streams also AF_IB. */
struct rsocket *stream_open(int domain, int *err);
struct rsocket *dgram_open(int domain, int *err);

static inline bool rsocket_is_nonblocking(const struct rsocket *rs, int flags)
{
	return (flags & MSG_DONTWAIT) != 0 ||
	       (__atomic_load_n(&rs->flags, __ATOMIC_RELAXED) & O_NONBLOCK) != 0;
}

/* ---- table.c --------------------------------------------------------------------------------- */

/* `fd`, which has just been opened, under a number for an rsocket. */
int rsocket_number(int fd);
void rsocket_init(struct rsocket *rs, const struct rsocket_ops *ops, int type);
/* Shows an rsocket under its number `rs->fd`. 0 or a negative errno. */
int table_insert(struct rsocket *rs);
/* The rsocket of a number, held until table_put; NULL: none. No lock. */
struct rsocket *table_get(int fd);
/* The same, also between table_remove and table_free_last: rclose waits for what the service's
 * thread takes. */
struct rsocket *table_get_leaving(int fd);
void table_put(struct rsocket *rs);
/* Takes a held rsocket out of the table. False: another thread has. */
bool table_remove(struct rsocket *rs);
/* Of one that table_remove took and the caller still holds: the last table_put frees it. */
void table_free_last(struct rsocket *rs);
/* In a forked child: an rsocket of the parent that had this number is forgotten. False: there was
 * none. */
bool table_forget(int fd);
/* In a forked child: does the number still stand for a stream or a set of the parent? */
bool table_is_parents(int fd);

/* ---- config.c -------------------------------------------------------------------------------- */

struct rsocket_defaults {
	u32 receive_bytes, send_bytes; /* of buffers */
	u32 send_queue, receive_queue; /* requests */
	u32 inline_bytes;
	u32 iomaps;	    /* remote mappings offered */
	u32 polling_us;	    /* how long a thread polls before it sleeps */
} FIXED;

const struct rsocket_defaults *rsocket_defaults(void);

/* The number of remote mappings as one byte says it, and back: beyond 128 in steps of 256. */
u32 iomaps_round(u32 count);

#endif
