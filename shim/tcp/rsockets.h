/* rsockets.h: the shim of `anyverbs run --rsockets`. It carries the TCP connections of an
 * unmodified program over rsockets (man 7 rsocket), and over TCP where the peer has none.
 *
 * The program's descriptor is always one of the kernel's:
 *
 *   SOCK_FRESH     a TCP socket, before connect() or listen()
 *   SOCK_LISTENER  a listening TCP socket; beside it an rsocket listens at the same address
 *   SOCK_DIRECT    one end of a pair of Unix sockets. Data goes through the rsocket. A process that
 *                  gets the descriptor without the shim's help reads and writes the pair, and the
 *                  service thread of the connection's owner relays the bytes
 *   SOCK_KERNEL    the kernel's alone: the pair of a connection that is relayed, or whose owner is
 *                  the parent; only the addresses are answered here
 *
 * A connection that fell back to TCP has no struct sock: its calls go to the C library.
 *
 * | file | has |
 * |---|---|
 * | calls.c | the r* calls of librdmacm.so.1, found at the first use |
 * | cancel.c | threads that are cancelled |
 * | table.c | descriptors, and the life of a struct sock |
 * | socket.c connect.c listen.c | socket, bind, connect, names; listen and accept |
 * | service.c | the service thread: completes connections of listeners, relays |
 * | data.c file.c fortify.c | read, write and their families; sendfile, stdio; fortified names |
 * | async.c | POSIX AIO, SIGIO |
 * | option.c | getsockopt, setsockopt, ioctl, fcntl |
 * | wait.c select.c | a wait for descriptors of all kinds; poll, select and their families |
 * | epoll.c | epoll |
 * | close.c | close, dup, shutdown, fork |
 * | exit.c | the end of the process |
 * | inherit.c | the addresses of a connection that came by exec |
 * | share.c | connections that a child and its parent use |
 *
 * No lock of the shim is held across an r* call. */
#ifndef RSOCKETS_RSOCKETS_H
#define RSOCKETS_RSOCKETS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "../next.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/log.h"

/* ---- calls.c ---- */

/* Each is the call of rdma/rsocket.h without its "r". */
struct rcalls {
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int s, const struct sockaddr *addr, socklen_t size);
	int (*listen)(int s, int backlog);
	int (*accept)(int s, struct sockaddr *addr, socklen_t *size);
	int (*connect)(int s, const struct sockaddr *addr, socklen_t size);
	int (*shutdown)(int s, int how);
	int (*close)(int s);
	ssize_t (*recv)(int s, void *buf, size_t size, int flags);
	ssize_t (*send)(int s, const void *buf, size_t size, int flags);
	ssize_t (*recvmsg)(int s, struct msghdr *msg, int flags);
	ssize_t (*sendmsg)(int s, const struct msghdr *msg, int flags);
	int (*poll)(struct pollfd *fds, nfds_t count, int timeout);
	int (*getpeername)(int s, struct sockaddr *addr, socklen_t *size);
	int (*getsockname)(int s, struct sockaddr *addr, socklen_t *size);
	int (*setsockopt)(int s, int level, int name, const void *value, socklen_t size);
	int (*getsockopt)(int s, int level, int name, void *value, socklen_t *size);
	int (*fcntl)(int s, int command, ...);
} FIXED;

extern struct rcalls rcalls;
/* Loads librdmacm.so.1 on the first call. False: it cannot be had, and all stays TCP. */
bool rcalls_load(void);
/* A new rsocket whose end never waits, as a TCP socket's: nor does that of what it accepts. */
int rsocket_new(int domain);
/* Ends an rsocket. SO_LINGER may keep it waiting. */
void rsocket_end(int rfd);
/* It shall not, if it has a time to wait: nobody waits for the service thread. */
void rsocket_forgo_linger(int rfd);

/* ---- table.c ---- */

enum sock_kind { SOCK_FRESH, SOCK_LISTENER, SOCK_DIRECT, SOCK_KERNEL };

enum { FD_LIMIT = 65536 }; /* descriptors from here on stay TCP */

struct address {
	struct sockaddr_storage store;
	socklen_t size; /* 0: not known */
} OWNED_BY(the sock);

struct sock_option {
	struct sock_option *next;
	int level, name;
	int given; /* SO_SNDBUF, SO_RCVBUF: what the program said; the kernel's answer is another */
	socklen_t size;
	u8 value[];
} OWNED_BY(option.lock);

/* Connections of a listener that the program has not accepted yet. */
struct accepted {
	struct list_head node;
	int rfd;
} OWNED_BY(service.lock);

struct sock {
	u32 refs ATOMIC_ONLY;	 /* the table's, and one of each call; 0: in the pool */
	u8 kind ATOMIC_ONLY;   /* enum sock_kind */
	u8 nonblock ATOMIC_ONLY; /* O_NONBLOCK as the program sees it */
	u8 shut_write ATOMIC_ONLY;
	/* connect() has said EINPROGRESS, and is to say 0 once */
	u8 connecting ATOMIC_ONLY;
	u8 reset ATOMIC_ONLY; /* the program has seen ECONNRESET: then TCP says EPIPE */
	u8 et_reported ATOMIC_ONLY; /* some edge-triggered entry has reported IN (1), OUT (4) */
	/* KERNEL: where a child asks for its parent's connection; -1: it need not, or has */
	int ask ATOMIC_ONLY;
	u32 slots OWNED_BY(table.lock); /* descriptors */
	int domain FIXED;
	/* The rsocket; -1: none. DIRECT: fixed. Listeners: set by the thread whose exchange of
	 * tried_ms has won, and withdrawn by the service thread behind service.lock. */
	int rfd OWNED_BY(the connection or the listener);
	int far FIXED; /* DIRECT: the other end of the pair */
	int timeout_ms[2] ATOMIC_ONLY; /* SO_RCVTIMEO, SO_SNDTIMEO; 0: none */
	/* DIRECT, KERNEL: fixed. FRESH: what the program's bind() gave */
	struct address local OWNED_BY(the calls of the program);
	struct address peer OWNED_BY(the calls of the program);
	struct sock_option *options OWNED_BY(option.lock);
	struct list_head items OWNED_BY(epoll.lock);
	/* listeners */
	struct list_head accepted OWNED_BY(service.lock);
	struct list_head service OWNED_BY(service.lock); /* in the service's list */
	/* an eventfd, readable while `accepted` has one; -1: no rsocket */
	int bell FIXED;
	u8 taking ATOMIC_ONLY;	   /* the service accepts: a client may know already */
	bool wanted ATOMIC_ONLY;   /* this process has waited for it or accepted */
	bool withdraw OWNED_BY(service.lock); /* the service shall close the rsocket */
	u64 tried_ms ATOMIC_ONLY;	      /* when the port was tried last */
	int backlog OWNED_BY(the calls of the program);
	/* clients of `rfd` are connected before it asks */
	bool begun OWNED_BY(the service thread);
	struct sock *free OWNED_BY(table.lock); /* the next in the pool */
};

/* The table's. The process that has written it; another one is a child of vfork. */
extern pid_t table_pid;
extern struct sock *table_socks[FD_LIMIT];

struct sock *table_hold(int fd);

/* The descriptor is, just now, one of ours. */
static inline bool sock_is_at(int fd)
{
	return (unsigned)fd < FD_LIMIT &&
	       __atomic_load_n(&table_socks[fd], __ATOMIC_ACQUIRE) != (void *)0;
}

/* The sock of a descriptor, held until sock_put; NULL: it is none of ours. */
static inline struct sock *sock_get(int fd)
{
	return sock_is_at(fd) ? table_hold(fd) : (void *)0;
}

/* Takes another reference to a sock that is held. */
void sock_hold(struct sock *s);
void sock_put(struct sock *s);
/* A new one, with the table's reference; NULL: no memory. table_add gives it a descriptor. */
struct sock *sock_new(enum sock_kind kind, int domain);
/* Puts the sock behind a descriptor. */
void table_add(int fd, struct sock *s);
/* The sock that was behind the descriptor, if that was its last one: with the table's reference. */
struct sock *table_remove(int fd);
/* Calls fn for each sock of the table, without a lock, on a reference of its own. */
void table_each(void (*fn)(struct sock *s));
/* Some descriptor is of that kind. */
bool table_has(enum sock_kind kind);

static inline enum sock_kind sock_kind(const struct sock *s)
{
	return (enum sock_kind)__atomic_load_n(&s->kind, __ATOMIC_ACQUIRE);
}

static inline void sock_set_kind(struct sock *s, enum sock_kind kind)
{
	__atomic_store_n(&s->kind, (u8)kind, __ATOMIC_RELEASE);
}

/* ms of the monotonic clock. */
u64 now_ms(void);
/* All handlers of signals in this process have SA_RESTART: a blocking call that EINTR ended begins
 * again, as the kernel's would. */
bool signal_restarts(void);

/* ---- cancel.c ---- */

/* The program lets this thread be cancelled at any instruction, and no call of ours has deferred
 * it. */
extern __thread bool cancel_async __attribute__((tls_model("initial-exec")));
/* Defers it. True, for cancel_restore. */
bool cancel_defer(void);
void cancel_restore(void);

/* A call that may block. The thread may be cancelled when it begins, and while it sleeps. */
struct call {
	struct sock *s; /* held; NULL: none of ours */
	bool deferred;
} OWNED_BY(the caller);
#define CALL struct call CLEANUP(call_end)

/* One without a sock, which may come later. */
static inline struct call call_begin_plain(void)
{
	struct call c = { .deferred = cancel_async && cancel_defer() };

	pthread_testcancel();
	return c;
}

/* With the sock of the descriptor, if it is one of ours. */
static inline struct call call_begin(int fd)
{
	struct call c = { .s = (void *)0 };

	if (!sock_is_at(fd))
		return c;
	c = call_begin_plain();
	c.s = table_hold(fd);
	return c;
}

static inline void call_end(struct call *c)
{
	if (c->s != (void *)0)
		sock_put(c->s);
	if (unlikely(c->deferred))
		cancel_restore();
}

/* The rest of the scope is no place to be cancelled. */
#define QUIET() int quiet_state CLEANUP(quiet_end) = quiet_begin()
int quiet_begin(void);
void quiet_end(const int *state);

/* ---- connect.c ---- */

/* A new descriptor of a connection, which takes over `rfd`, also on
 * failure. `flags` as accept4's. The descriptor or -1 and errno. */
int connection_open(int rfd, int domain, int flags);
/* Copies an address as the kernel does: what fits, and the whole size. */
int address_give(const struct address *a, struct sockaddr *addr, socklen_t *size);

/* ---- listen.c ---- */

/* This process waits for connections of the listener: takes the port for rsockets, if no process
 * has it. At most one try in 100 ms. */
void listener_want(struct sock *s, int fd);
/* shutdown() has ended the kernel's listener, which tells threads in accept(): the rsocket ends,
 * and what is left is a socket as before listen(). */
void listener_shut(struct sock *s, int fd);
/* Says, or no more, to a program that inherits the listener that O_NONBLOCK is not its own. */
void listener_mark(int fd, bool on);
/* A wait on the listener shall end after so many ms, to try again; -1: need not. */
int listener_retry_ms(struct sock *s);

/* ---- service.c ---- */

/* The thread is there, or begins. */
bool service_begin(void);
/* The service completes the connections of a listener from now on. False: no thread. */
bool service_listen(struct sock *s);
/* It has listeners. */
bool service_listens(void);
/* The thread is there. Any context. */
bool service_is_there(void);
/* What the service waits for has changed. */
void service_wake(void);
/* Ends that, and waits until the rsocket is closed: the port is free. */
void service_withdraw(struct sock *s);
/* A connection that the listener has; -1: none. */
int service_accept(struct sock *s);
/* The same, also one that the service is just accepting: waits until it has. */
int service_accept_late(struct sock *s);
/* Relays between the pair and the rsocket, until one ends. Takes the caller's reference. */
void service_relay(struct sock *s);

/* ---- data.c ---- */

ssize_t data_send(struct sock *s, const struct iovec *v, int count, int flags);
ssize_t data_recv(struct sock *s, struct iovec *v, int count, int flags);

/* ---- option.c ---- */

/* Gives a connection that was accepted the options of its listener. */
void option_inherit(struct sock *s, const struct sock *listener);
/* Gives an rsocket the options that the program has set. */
void option_carry(const struct sock *s, int rfd);
/* Sets those of a sock for another descriptor of the program's. */
void option_repeat(const struct sock *s, int fd);
void option_free(struct sock *s);
/* Changes O_NONBLOCK of all that belongs to the sock. */
int sock_set_nonblock(struct sock *s, int fd, bool on);

/* ---- wait.c ---- */

enum { WAIT_SMALL = 64 };

struct wait_entry {
	struct sock *sock; /* what fds[i] stands for, held; NULL: the kernel's own */
	short want;	   /* events of the program */
	short mute;	   /* and those that it shall not be told of */
} OWNED_BY(the caller);

/* One wait for descriptors of all kinds. A descriptor has one entry, a listener two, an epoll one
 * and those of its items. */
struct wait {
	struct pollfd *fds;
	struct wait_entry *entries;
	u32 count, room;
	bool direct; /* there is an rsocket */
	bool early;  /* the last wait_run ended before its time, to begin anew */
	int most_ms; /* a wait is not longer than this; -1: no limit */
	struct pollfd small_fds[WAIT_SMALL];
	struct wait_entry small_entries[WAIT_SMALL];
} OWNED_BY(the caller);

void wait_begin(struct wait *w);
/* Adds what stands for `fd`, wanting `events`. The index of the first entry, -1: no memory. */
int wait_add(struct wait *w, int fd, short events);
/* The same for a sock that the caller has. */
int wait_add_sock(struct wait *w, struct sock *s, int fd, short events, short mute);
/* Adds a descriptor of the kernel's, or an rsocket as it is. */
int wait_add_plain(struct wait *w, int fd, short events);
/* What the entries from `at` to `end`, those of one descriptor, say. */
short wait_result(const struct wait *w, u32 at, u32 end);
/* Waits: 1: something is ready, 0: the time is over, or `early`, -1: errno. */
int wait_run(struct wait *w, int timeout_ms, const sigset_t *mask);
void wait_end(struct wait *w);
/* For one sock: 1 ready, 0 the time is over, -1: errno. A timeout of 0 or less is none. */
int wait_one(struct sock *s, short events, int timeout_ms);
/* Events of poll() on a descriptor need the shim. */
bool wait_is_ours(int fd);
/* What is left of a timeout that ends at `until`; -1 stays -1. */
int wait_left(int timeout_ms, u64 until);

/* ---- epoll.c ---- */

struct ep;
extern struct ep *ep_table[FD_LIMIT];

/* The epoll of this descriptor has entries of ours. */
bool ep_is_ours(int fd);
/* Adds the entries of an epoll to a wait, as those of one descriptor. -1: none of ours. */
int ep_wait_add(struct wait *w, int fd, short events);
/* The descriptor is closed, or has a copy. */
void ep_closed(int fd);
void ep_copied(int from, int to);
/* The program has read or written: what was reported once may be reported again. */
void ep_rearm(struct sock *s, u8 what);
/* Another descriptor than before tells of the sock: waits under way begin anew. */
void ep_moved(struct sock *s);
/* The last descriptor of the sock is gone. */
void ep_forget(struct sock *s);

enum { REARM_IN = 1, REARM_OUT = 4 };

static inline void sock_rearm(struct sock *s, u8 what)
{
	if (unlikely(__atomic_load_n(&s->et_reported, __ATOMIC_ACQUIRE) & what))
		ep_rearm(s, what);
}

/* ---- close.c ---- */

/* Hands the connection to the service, for whoever uses the pair without the shim. */
void sock_give_away(struct sock *s);
/* The same of the connection of a descriptor, if it is one. */
void sock_hand_on(int fd);
/* `to` is a copy of `from` now, if that is one of ours. */
void sock_copied(int from, int to);

/* ---- exit.c ---- */

/* The process ends: no call that has failed returns any more (exit_stay). */
extern bool exit_begun;
__attribute__((noreturn)) void exit_stay(void);
/* Ends all connections, and waits until what was written is with the peers: for a while, which is
 * that of all of them together. */
void exit_flush(void);
/* A connection has been closed, and may linger. Any context. */
void exit_note_closed(void);
/* The same on the service thread, if a thread waits for it. */
void exit_serve(void);
void exit_child(void);

/* ---- inherit.c ---- */

/* Gives the far end of a connection's pair a name that says the addresses of the sock. */
void inherit_name(int far, const struct sock *s);
/* The sock of a descriptor that this process has from another one, for its addresses alone: it is
 * in no table, and sock_put ends it. NULL: another kind of descriptor. Keeps errno. */
struct sock *inherit_get(int fd);

/* ---- share.c ---- */

/* Before a fork: the child can ask for this process' connections. */
void share_prepare(void);
/* In a child: the descriptor at which it asks its parent, -1: none. */
int share_parent(void);
/* Asks the owner of the connection to relay it, and waits until it does. */
void share_ask(struct sock *s);
/* The descriptor that the service thread waits for, -1: none; and what it does then. */
int share_fd(void);
void share_serve(void);

/* The caller uses the descriptor of a connection that its parent may still use. */
static inline void sock_use(struct sock *s)
{
	if (unlikely(__atomic_load_n(&s->ask, __ATOMIC_RELAXED) >= 0))
		share_ask(s);
}

/* A call with the sock whose bytes go through an rsocket. NULL: the kernel has the call. */
static inline struct call call_begin_data(int fd)
{
	struct call c = call_begin(fd);

	if (likely(c.s == (void *)0) || sock_kind(c.s) == SOCK_DIRECT)
		return c;
	sock_use(c.s);
	sock_put(c.s);
	c.s = (void *)0;
	return c;
}

#endif
