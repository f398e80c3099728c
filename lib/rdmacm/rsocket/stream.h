/* stream.h: stream rsockets: a byte stream over an RC queue pair, compatible with rdma-core's.
 *
 * Each end has a buffer of two halves and tells the peer where a half lies; the peer writes data
 * there and says by immediate data how much. When a half has been read the reader writes its place
 * into the peer's table of entries (credits). docs/rsockets.md has the protocol.
 *
 *   stream.c          the object: made, named, shut down, closed
 *   stream_conn.c     connecting, listening: events of the CM
 *   stream_accept.c   accepting, in the background
 *   stream_cq.c       completions, credits, waiting
 *   stream_send.c     sending
 *   stream_recv.c     receiving
 *   stream_options.c  options
 *   stream_format.c   the protocol's bytes
 *   linger.c          streams that the application has closed, in the background
 *   service.c         the thread that takes the CM's events and keeps connections alive
 *
 * Locks: linger_list.lock, conn_lock, send_lock, recv_lock and then cq_lock; a listener's conn_lock
 * before that of a stream that waits for raccept. None is held while a thread sleeps.
 */
#ifndef RDMACM_STREAM_H
#define RDMACM_STREAM_H

#include <rdma/rdma_cma.h>

#include "base/clock.h"
#include "cq.h"
#include "device.h"
#include "rsocket.h"
#include "stream_format.h"

/* Where the connection stands. */
enum stream_phase {
	STREAM_NEW,
	STREAM_BOUND,
	STREAM_LISTENING,
	STREAM_RESOLVING_ADDR,
	STREAM_RESOLVING_ROUTE,
	STREAM_CONNECTING,
	STREAM_ACCEPTING,
	STREAM_FAILED, /* connecting has failed */
	STREAM_CONNECTED,
};

/* What no longer goes through a connection. */
enum stream_end {
	STREAM_END_RECV = 1 << 0, /* shut down here */
	STREAM_END_SEND = 1 << 1,
	STREAM_PEER_DONE = 1 << 2, /* the peer sends no more */
	STREAM_PEER_GONE = 1 << 3, /* nor does it receive */
	STREAM_BROKEN = 1 << 4,	   /* the connection has failed; `error` */
	STREAM_CLOSED = 1 << 5,	   /* rclose has been called */
	STREAM_SEND_FAILED = 1 << 6, /* a call to send has said that the peer has gone */
	STREAM_NO_SEND = STREAM_END_SEND | STREAM_PEER_GONE | STREAM_BROKEN | STREAM_CLOSED,
	STREAM_NO_RECV = STREAM_END_RECV | STREAM_PEER_DONE | STREAM_PEER_GONE | STREAM_BROKEN |
			 STREAM_CLOSED,
	STREAM_NO_CONTROL = STREAM_PEER_GONE | STREAM_BROKEN,
};

enum {
	STREAM_ENTRIES = 2,   /* of the table that the peer writes buffers' places into */
	STREAM_CONTROLS = 4,  /* control messages in flight; places of the send queue */
	STREAM_FAREWELLS = 2, /* more places: STREAM_SHUTDOWN, STREAM_DISCONNECT */
	/* Receives beyond the peer's credits, for its control messages while this end takes
	 * nothing: one at its start, 4 at most as it reads what was sent to it, two of farewell. */
	STREAM_SPARE_RECEIVES = 8,
	STREAM_LEAST_QUEUE = 16,
	STREAM_MOST_QUEUE = 0xfffe,
	STREAM_SEND_LOW = 2048,			 /* writable with that much room */
	STREAM_BUFFER_MIN = 2 * STREAM_SEND_LOW, /* bytes of SO_RCVBUF, SO_SNDBUF */
	STREAM_BUFFER_MAX = 32 << 20,
	STREAM_PIECE_MAX = 65536, /* bytes of one write */
};

/* How long a connection that ends has for a peer whose adapter acknowledges nothing: it is stopped,
 * or posts no receives. */
#define STREAM_LINGER_S 10
#define STREAM_LINGER_NS (STREAM_LINGER_S * NS_PER_S)

/* What an application may set before it connects; a listener's go to what it accepts. */
struct stream_sizes {
	u32 send_bytes, recv_bytes;
	u32 sq, rq;
	u32 inline_bytes;
	u32 iomaps;
} OWNED_BY(stream.conn_lock);

struct stream {
	struct rsocket rs GUARDS_ITSELF; /* first */

	/* ---- the connection ---- */
	struct lock conn_lock;
	u32 phase ATOMIC_ONLY; /* enum stream_phase; changes under conn_lock */
	u32 ended ATOMIC_ONLY; /* enum stream_end */
	u32 error ATOMIC_ONLY; /* errno for SO_ERROR */
	int domain FIXED;
	struct rdma_event_channel *channel FIXED;
	struct rdma_cm_id *id WRITTEN_UNDER(conn_lock); /* fixed once connected */
	struct stream_sizes want WRITTEN_UNDER(conn_lock);
	struct sockaddr_storage dest GUARDED_BY(conn_lock);
	u32 retries GUARDED_BY(conn_lock);
	struct sockaddr_storage bound GUARDED_BY(conn_lock); /* by rbind; family 0: to nothing */
	void *route GUARDED_BY(conn_lock); /* RDMA_ROUTE */
	socklen_t route_len GUARDED_BY(conn_lock);
	bool told GUARDED_BY(conn_lock); /* rconnect has said how an earlier one ended */
	/* bits of those that are on */
	u32 so_options GUARDED_BY(conn_lock);
	u32 tcp_options GUARDED_BY(conn_lock);
	u32 ipv6_options GUARDED_BY(conn_lock);
	struct linger linger GUARDED_BY(conn_lock);
	bool linger_set GUARDED_BY(conn_lock); /* by the application; else `linger` is off */
	u32 at_once ATOMIC_ONLY; /* RDMA_CLOSE_AT_ONCE; changes under conn_lock */
	u32 keepalive_s GUARDED_BY(conn_lock);
	u64 left_ns GUARDED_BY(conn_lock); /* when a near peer left without a word; 0: not so */

	/* ---- a closed one that lingers (linger.c) ---- */
	bool lingers OWNED_BY(rclose, then linger_list.lock); /* to be, or in linger's list */
	u64 lingers_until_ns OWNED_BY(rclose, then linger_list.lock);
	struct list_head lingering OWNED_BY(linger_list.lock);
	struct waiter linger_place OWNED_BY(linger_list.lock);

	/* ---- a listener (stream_accept.c) ---- */
	/* Streams, by `waits`: answered, and not heard of again, oldest first; for raccept. */
	struct list_head asking GUARDED_BY(conn_lock), waiting GUARDED_BY(conn_lock);
	u32 asking_count GUARDED_BY(conn_lock), waiting_count GUARDED_BY(conn_lock);
	u32 answers GUARDED_BY(conn_lock); /* the most that may be `asking` */
	struct request *held GUARDED_BY(conn_lock); /* found no place; NULL: none */
	int backlog GUARDED_BY(conn_lock); /* of rlisten */
	u32 places GUARDED_BY(conn_lock); /* the service accepts while fewer wait */
	bool paused GUARDED_BY(conn_lock); /* no place, or too early: no requests are heard of */
	int untold GUARDED_BY(conn_lock); /* errno that raccept is to tell; 0: none */
	bool listed GUARDED_BY(conn_lock); /* the service calls accept_look */
	u64 opens_ns GUARDED_BY(conn_lock); /* until then only raccept accepts */
	bool on_demand WRITTEN_UNDER(conn_lock); /* raccept accepts */
	int bell FIXED; /* semaphore of what waits, and `untold`; since rlisten, before that -1 */
	struct rdma_event_channel *early FIXED; /* of the ids of `waiting`; likewise, NULL */
	struct list_head waits OWNED_BY(conn_lock of its listener);
	bool asks OWNED_BY(conn_lock of its listener); /* on `asking` */
	u64 answered_ns OWNED_BY(conn_lock of its listener);

	/* ---- made with the queue pair, and then fixed ---- */
	struct ibv_pd *pd FIXED; /* of this connection alone */
	struct rsocket_cq cq GUARDS_ITSELF;
	struct rsocket_buffer send_mem FIXED;
	struct rsocket_buffer recv_mem FIXED;
	struct rsocket_buffer table_mem FIXED;
	u8 *send_buf FIXED;
	u8 *recv_buf FIXED;
	u32 send_size FIXED; /* bytes */
	u32 recv_size FIXED;
	u32 sq_size FIXED;
	u32 rq_size FIXED;
	u32 sq_inline FIXED;
	u32 iomaps FIXED;
	/* the peer writes here; behind the entries are the mappings (iomap.c) */
	volatile struct stream_sge *table FIXED;
	struct stream_sge peer_table FIXED; /* where this end writes to */
	struct stream_sge peer_iomaps FIXED;
	bool swap FIXED; /* the peer's order of bytes is the other one */
	bool near FIXED; /* rsocket_hears_of_death */

	/* ---- sending ---- */
	struct lock send_lock CACHE_ALIGNED;
	struct stream_sge target GUARDED_BY(send_lock); /* the rest of the entry in use */
	u32 entries_used GUARDED_BY(send_lock);
	u32 send_at GUARDED_BY(send_lock); /* offset in send_buf */
	u64 sent_bytes ATOMIC_ONLY; /* posted so far; changes under send_lock */
	u32 sent_wrs ATOMIC_ONLY;   /* likewise */
	u16 sent_messages ATOMIC_ONLY; /* likewise */
	u32 unsignaled GUARDED_BY(send_lock); /* of sent_wrs: behind the last one that completes */
	bool signals_all GUARDED_BY(send_lock); /* this end has said that it closes */
	struct list_head mappings GUARDED_BY(send_lock); /* this end's memory: iomap.c */
	u8 *map_places GUARDED_BY(send_lock); /* of the peer's, 1: taken; made on demand */
	u32 maps_untold ATOMIC_ONLY;	      /* 1: the peer is to be told of some */

	/* ---- receiving ---- */
	struct lock recv_lock CACHE_ALIGNED;
	u32 recv_at GUARDED_BY(recv_lock); /* offset in recv_buf */
	u32 message_left GUARDED_BY(recv_lock); /* bytes of the message at `head`; 0: all */
	u32 head ATOMIC_ONLY; /* of `messages`; changes under recv_lock */
	u64 read_bytes ATOMIC_ONLY; /* likewise */
	u16 read_messages ATOMIC_ONLY; /* likewise */

	/* ---- completions ---- */
	struct lock cq_lock CACHE_ALIGNED ACQUIRED_AFTER(send_lock) ACQUIRED_AFTER(recv_lock);
	u32 *messages FIXED; /* a ring of rq_size + 1 lengths; slots change under cq_lock */
	u32 tail ATOMIC_ONLY; /* of `messages`; changes under cq_lock */
	u64 done_bytes ATOMIC_ONLY; /* of sent_bytes: complete */
	u32 done_wrs ATOMIC_ONLY;
	u16 allowed_messages ATOMIC_ONLY; /* sent_messages may count up to this */
	u32 entries_given ATOMIC_ONLY; /* by the peer; entries_used follows */
	u64 granted_bytes ATOMIC_ONLY; /* to the peer; changes under cq_lock */
	u64 arrived_bytes ATOMIC_ONLY; /* changes under cq_lock */
	u16 credits_at ATOMIC_ONLY; /* of read_messages: allow more; likewise */
	u32 peer_entry GUARDED_BY(cq_lock); /* the next one to write */
	u32 grant_half GUARDED_BY(cq_lock); /* which half of recv_buf goes to the peer next */
	u32 controls_sent ATOMIC_ONLY; /* messages; change under cq_lock */
	u32 controls_done ATOMIC_ONLY;
	u64 alive_ns GUARDED_BY(cq_lock); /* when the last keepalive was sent */
	u32 receives_due GUARDED_BY(cq_lock); /* taken, and not posted anew yet */
	bool probed GUARDED_BY(cq_lock); /* why receives have been flushed */
	bool starved GUARDED_BY(cq_lock); /* all receives were used up; nothing has come since */
};

static inline struct stream *stream_of(struct rsocket *rs)
{
	return (struct stream *)rs;
}

static inline u32 stream_phase(const struct stream *s)
{
	return __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE);
}

static inline u32 stream_ended(const struct stream *s)
{
	return __atomic_load_n(&s->ended, __ATOMIC_ACQUIRE);
}

/* Adds to a counter that changes under a lock, which the caller holds, and is read without it. The
 * addition releases what went before: a locked instruction would be needed for two writers only. */
#define counter_add(counter, n)                                                                    \
	__atomic_store_n((counter),                                                                \
			 (__typeof__(*(counter)))(__atomic_load_n((counter), __ATOMIC_RELAXED) +   \
						  (n)),                                            \
			 __ATOMIC_RELEASE)

/* The id of a work request that completes: what it is, and how many of sent_wrs are complete with
 * it: those before it that do not complete by themselves, and it if it is counted there, too. */
static inline u64 stream_signal(struct stream *s, u32 message, bool counted)
	REQUIRES(s->send_lock)
{
	u64 wrs = s->unsignaled + counted;

	s->unsignaled = 0;
	return wrs << 32 | message;
}

/* ---- stream.c ---- */
/* A channel whose descriptor is the number of a stream. NULL: errno. */
struct rdma_event_channel *stream_channel(void);
/* A new stream around a channel, in no table. Without a channel it has no number yet. NULL: no
 * memory. */
struct stream *stream_new(struct rdma_event_channel *channel);
/* Adds to what has ended, and wakes who waits. What had ended before. */
u32 stream_end(struct stream *s, u32 bits);
/* The size of a buffer that somebody asks for, within limits. */
u32 stream_buffer_size(s64 bytes);
/* The connection has failed: `err` (negative) is what SO_ERROR says. */
void stream_break(struct stream *s, int err);
/* Why nothing more can be received: 0 (the end) or a negative errno. */
int stream_recv_error(struct stream *s);
int stream_send_error(struct stream *s);
/* Frees a stream that nobody uses, whatever its peer has acknowledged. */
void stream_destroy(struct stream *s);

/* ---- stream_conn.c ---- */
int stream_bind(struct rsocket *rs, const struct sockaddr *addr, socklen_t len);
/* Ends a listener, as shutdown() does: threads in stream_accept hear of it, and so do clients that
 * wait. 0 or a negative errno. */
int stream_unlisten(struct stream *s);
int stream_listen(struct rsocket *rs, int backlog);
int stream_connect(struct rsocket *rs, const struct sockaddr *addr, socklen_t len);
int stream_name(struct rsocket *rs, bool peer, struct sockaddr *addr, socklen_t *len);
/* Waits until a connection that is being made stands. 0, -EAGAIN, -ENOTCONN, or why it failed. */
int stream_await(struct stream *s, bool nonblock);
/* Takes the events of the CM that wait. On the service's thread. */
void stream_take_events(struct stream *s);

/* The connection stands there now; wakes who waits. */
void stream_set_phase(struct stream *s, enum stream_phase phase) REQUIRES(s->conn_lock);

/* An event of the stream's id. */
void stream_event(struct stream *s, const struct rdma_cm_event *event) REQUIRES(s->conn_lock);

/* ---- stream_accept.c ---- */
/* The listener is about to listen: the service accepts what comes, from 25 ms on. 0 or a negative
 * errno. */
int accept_begin(struct stream *s, int backlog) REQUIRES(s->conn_lock);
/* How many clients are answered at a time, and how many requests the CM keeps unanswered. */
u32 accept_answers(int backlog);
/* rlisten once more. */
void accept_resize(struct stream *s, int backlog) REQUIRES(s->conn_lock);
/* From now on the service accepts for a listener that was to accept on demand. 0 or a negative
 * errno. */
int accept_in_background(struct stream *s) REQUIRES(s->conn_lock);
/* Ends all streams that wait. */
void accept_end(struct stream *s) REQUIRES(s->conn_lock);
/* What the service does for a listener. */
void accept_take_events(struct stream *s) REQUIRES(s->conn_lock);
/* At times, on the service's thread: begins to accept a while after rlisten, takes a client's first
 * packet for its word, and drops clients that have been silent for too long. *next_ns: no later
 * than when it is to be called again. */
void accept_look(struct stream *s, u64 now_ns, u64 *next_ns);
/* The descriptor of a listener that is readable while raccept has something to take. */
static inline int accept_fd(const struct stream *s)
{
	return s->on_demand ? s->rs.fd : s->bell;
}
int stream_accept(struct rsocket *rs, struct sockaddr *addr, socklen_t *len);

/* ---- stream_cq.c ---- */
/* Queue pair, queues and buffers for the id. 0 or a negative errno; stream_unmake undoes it. */
int stream_make(struct stream *s) REQUIRES(s->conn_lock);
void stream_unmake(struct stream *s);
/* What this end says when it connects; and what the peer said. */
void stream_hello(struct stream *s, struct stream_hello *out);
void stream_begin(struct stream *s, const struct stream_hello *peer);
/* Takes completions, gives credits. */
void stream_drive(struct stream *s);
/* Has the peer of a stream that is being accepted sent anything? */
bool stream_hears(struct stream *s);
/* Says behind all data that this end has ended: STREAM_SHUTDOWN, STREAM_DISCONNECT. 0 or a negative
 * errno. Never waits: each has a place. */
int stream_say_end(struct stream *s, enum stream_control what);
/* Both ends have said their last, and this end's has arrived: what happens to the connection then
 * is no error. */
bool stream_has_parted(struct stream *s);
/* All that was posted is complete, or the connection has failed. */
bool stream_is_flushed(struct stream *s);
bool stream_can_send(struct stream *s);
/* The peer has unread bytes: its whole buffer was filled, and it has given none of it back. */
bool stream_is_out_of_room(struct stream *s);
bool stream_has_data(struct stream *s);
/* Waits until `ready` holds: polls for a while, then sleeps. 0, -EAGAIN, -EINTR, -ETIMEDOUT (`ns`;
 * 0: without a limit). Without a limit a thread that sleeps may be cancelled. */
int stream_wait(struct stream *s, bool (*ready)(struct stream *s), bool nonblock, u64 ns);
void stream_arm(struct rsocket *rs);
/* What is due at times, on the service's thread: keepalives, and the end of a connection whose near
 * peer has left without a word. *next_ns: no later than when it is to be called again. */
void stream_keepalive(struct stream *s, u64 now_ns, u64 *next_ns);
void stream_judge_left(struct stream *s, u64 now_ns, u64 *next_ns);

/* ---- stream_send.c, stream_recv.c ---- */
ssize_t stream_send(struct rsocket *rs, const struct iovec *iov, int count, int flags,
		    const struct sockaddr *addr, socklen_t len);
ssize_t stream_recv(struct rsocket *rs, const struct iovec *iov, int count, int flags,
		    struct sockaddr *addr, socklen_t *len);

/* Bytes of the send buffer that nothing uses. */
u32 stream_send_room(struct stream *s);

/* ---- iomap.c ---- */
off_t stream_iomap(struct rsocket *rs, void *buf, size_t len, int prot, int flags, off_t offset);
int stream_iounmap(struct rsocket *rs, void *buf, size_t len);
ssize_t stream_iowrite(struct rsocket *rs, const void *buf, size_t count, off_t offset, int flags);
/* Tells the peer of mappings that it does not know, before anything else is sent. 0, or as
 * stream_wait. */
int stream_tell_maps(struct stream *s, bool nonblock);
/* The queue pair comes to its end. */
void stream_free_maps(struct stream *s);

/* ---- stream_options.c ---- */
int stream_setsockopt(struct rsocket *rs, int level, int name, const void *value, socklen_t len);
int stream_getsockopt(struct rsocket *rs, int level, int name, void *value, socklen_t *len);

/* ---- service.c ---- */
/* Returns when the thread is there: 0 or a negative errno. */
int service_begin(void);
/* From now on the thread takes the events of this rsocket's channel, and of `early` if it has that.
 * 0 or a negative errno. */
int service_watch(struct stream *s);
void service_unwatch(struct stream *s);
/* A readable `fd` ends the thread's sleep, as does `bell`: linger_run follows. 0 or a negative
 * errno. */
int service_hear(int fd, struct sleeper *bell);
/* Those of the channel no longer, until service_watch. */
void service_pause(struct stream *s);
/* Returns once the thread does not hold the rsocket that has, or had, this number. May block. */
void service_leave(int fd);
/* Begins (true) or ends to keep the connection alive. */
int service_keepalive(struct stream *s, bool on);

/* ---- linger.c ---- */
/* Streams may linger: 0 or a negative errno. */
int linger_begin(void);
/* Takes over a stream that its last user frees, until its peer has acknowledged everything. */
void linger_keep(struct stream *s);
/* What the service's thread does for them. *next_ns: no later than when it is to be called again.
 */
void linger_run(u64 now_ns, u64 *next_ns);
/* How many there are. */
u32 linger_count(void);

#endif
