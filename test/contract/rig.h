/* rig.h: what every program of this folder stands on: the adapter as a kernel upper-layer driver
 * gets it (an ib_client), memory, queues, connected queue pairs, and waits with an end. The adapter
 * is the RoCE one, or a device of the driver that CONTRACT_DRIVER names (driver.h).
 *
 * Every call fails the test if the verb fails, unless its name says `try`.
 */
#ifndef TEST_CONTRACT_RIG_H
#define TEST_CONTRACT_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>

#include <rdma/ib_fmr_pool.h>
#include <rdma/ib_verbs.h>

enum {
	RIG_PAGE = 4096,
	RIG_BYTES = 64 * RIG_PAGE,
	RIG_WAIT_MS = 20000,
	RIG_QUIET_MS = 30,
	RIG_QKEY = 0x1234,
	RIG_ALL = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
		  IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND,
};

struct rig {
	struct ib_device *dev;
	/* of the driver under test; NULL: the RoCE adapter, which stays */
	struct ib_device *(*plug)(void);
	void (*unplug)(struct ib_device *device);
	struct ib_pd *pd;
	struct ib_mr *mr; /* the whole address space */
	u8 gid_index;
	union ib_gid gid;
	u8 *buf; /* RIG_BYTES, page-aligned, zeroed before each test */
};

extern struct rig rig;

/* Does everything go over UDP, as to another host (ANYVERBS_PATHS=udp)? */
bool rig_on_wire(void);
/* All of main(): runs the tests that CONTRACT_TEST matches, each in a process of its own, on a
 * node that is stopped at the end. Returns the exit status. `begin`, unless NULL, is called first
 * in each of these processes, before the adapter is there. */
int rig_run(const struct CMUnitTest *tests, size_t count, void (*begin)(void));
/* For `begin`: forks the test's other process, which runs child() and does not return from it, and
 * ends with its parent. *channel: in each process its end of a socket between them. */
void rig_fork_peer(int *channel, void (*child)(void));
struct sockaddr_in;
/* The device's first IPv4 address; port 0. */
struct sockaddr_in rig_address(void);
/* Runs `anyverbs device VERB NAME` on the test's node; returns its exit status. */
int rig_device(const char *verb, const char *name);
#define rig_run_tests(tests) rig_run(tests, sizeof(tests) / sizeof((tests)[0]), NULL)
/* cmocka's group fixtures: the adapter with a PD, a region and a buffer. */
int rig_group_setup(void **state);
int rig_group_teardown(void **state);
/* cmocka's fixture of each test: a zeroed buffer. */
int rig_setup(void **state);

/* Skips the test if the device has no such method, which it need not. */
#define rig_needs(method)                                                                          \
	do {                                                                                       \
		if (!rig.dev->method)                                                              \
			skip();                                                                    \
	} while (0)

/* A counter that threads share. */
static inline int count_get(const int *c)
{
	return __atomic_load_n(c, __ATOMIC_ACQUIRE);
}

static inline int count_add(int *c)
{
	return __atomic_add_fetch(c, 1, __ATOMIC_ACQ_REL);
}

/* Waits until *c is at least `value`; false: it is not in time. */
bool rig_await(const int *c, int value);
void rig_sleep_ms(int ms);
u64 rig_now_ms(void);
/* Fails the test if the pointer is an error. */
#define rig_ok(ptr)                                                                                \
	({                                                                                         \
		__auto_type ok_ = (ptr);                                                           \
		assert_false(IS_ERR(ok_));                                                         \
		ok_;                                                                               \
	})

struct ib_cq *rig_cq(int cqe);
struct ib_cq *rig_handler_cq(ib_comp_handler handler, void *context, int cqe, int vector);
/* 128 requests and 4 SGEs each way; `srq` may be NULL. */
struct ib_qp *rig_qp(enum ib_qp_type type, struct ib_cq *send_cq, struct ib_cq *recv_cq,
		     struct ib_srq *srq);
struct ib_qp_init_attr rig_qp_init(enum ib_qp_type type, struct ib_cq *send_cq,
				   struct ib_cq *recv_cq, struct ib_srq *srq);
/* One transition with all that it needs; 0 or a negative errno. */
int rig_try_init(struct ib_qp *qp);
int rig_try_rtr(struct ib_qp *qp, const union ib_gid *gid, u32 qpn);
int rig_try_rts(struct ib_qp *qp);
int rig_try_state(struct ib_qp *qp, enum ib_qp_state state);
void rig_connect(struct ib_qp *qp, const union ib_gid *gid, u32 qpn);
enum ib_qp_state rig_state(struct ib_qp *qp);
void rig_await_state(struct ib_qp *qp, enum ib_qp_state state);

/* Two queue pairs of one process, connected, with a CQ for each direction of each. */
struct link {
	struct ib_cq *scq, *rcq; /* a's sends and b's receives */
	struct ib_cq *bscq, *arcq;
	struct ib_qp *a, *b;
};

/* rcq may be given (b's receives), else NULL. */
void link_open(struct link *l, enum ib_qp_type type, struct ib_cq *rcq);
void link_close(struct link *l);
/* Puts both back to the state after link_open. */
void link_reset(struct link *l);

/* Local ACK Timeout: eight tries last as long as a busy machine may keep a thread waiting. */
u8 rig_timeout(void);
/* A multicast group of this program's own, for both sides of a fork. */
union ib_gid rig_group(u8 number);
/* The way to a port of this device or to a group: an address handle's, a queue pair's. */
struct ib_ah_attr rig_way(const union ib_gid *gid);
struct ib_sge rig_sge(u64 offset, u32 length);
int rig_try_send(struct ib_qp *qp, struct ib_send_wr *wr);
void rig_send(struct ib_qp *qp, struct ib_send_wr *wr);
/* A signalled SEND of `length` bytes at `offset` of the buffer. */
void rig_send_bytes(struct ib_qp *qp, u64 wr_id, u64 offset, u32 length, int flags);
/* A signalled datagram of such bytes. */
void rig_datagram(struct ib_qp *qp, struct ib_ah *ah, u32 qpn, u64 offset, u32 length);
/* A signalled WRITE or READ between such bytes and (va, rkey) of the peer. */
void rig_reach(struct ib_qp *qp, enum ib_wr_opcode op, u64 own, u64 va, u32 rkey, u32 length);
void rig_recv(struct ib_qp *qp, u64 wr_id, u64 offset, u32 length);
/* `count` messages of 8 bytes from a to b, each with its receive request first. */
void link_ping(struct link *l, int count, int flags);
/* Polls until `want` completions are there; returns how many came in time. */
int rig_poll(struct ib_cq *cq, int want, struct ib_wc *wc, int timeout_ms);
/* The status of the next one. */
enum ib_wc_status rig_outcome(struct ib_cq *cq);
/* Exactly one with this status. */
struct ib_wc rig_expect(struct ib_cq *cq, enum ib_wc_status status);
/* Takes `count` successes. */
void rig_drain(struct ib_cq *cq, int count);

#endif
