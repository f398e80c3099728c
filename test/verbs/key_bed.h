/* key_bed.h: what tests of keys stand on: one process with connected queue pairs, two protection
 * domains, a buffer and regions of it. What its queue pairs send goes the way that the variant
 * asks for (CMakeLists.txt).
 *
 * Every call fails the test if a verb fails, unless its name says `try`.
 */
#ifndef TEST_VERBS_KEY_BED_H
#define TEST_VERBS_KEY_BED_H

#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

enum {
	KEY_BYTES = 1 << 16,
	KEY_FAR = KEY_BYTES / 2, /* the half that peers reach; the other one is what they send */
	KEY_WAIT_MS = 20000,
	KEY_GID = 1, /* of an IPv4 address: every path has it */
	KEY_EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	KEY_REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

struct key_bed {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other_pd;
	/* of `near` and of `far`, sends and receives */
	struct ibv_cq *near_cq, *far_cq;
	struct ibv_qp *near, *far; /* connected; windows and regions are far's */
	uint8_t *bytes;		   /* KEY_BYTES, page-aligned */
	struct ibv_mr *own;	   /* all of it, for local use */
	union ibv_gid gid;
};

extern struct key_bed bed;

/* cmocka's fixtures. The type of `near` and `far` stands in **state as an enum ibv_qp_type; NULL:
 * RC. */
int key_setup(void **state);
int key_teardown(void **state);

struct ibv_qp *key_qp(struct ibv_cq *cq, enum ibv_qp_type type, struct ibv_srq *srq);
/* Puts both to RESET, connects them and brings them to RTS. */
void key_connect(struct ibv_qp *a, struct ibv_qp *b);
/* near and far anew, after an error: takes what waits in their CQs. */
void key_again(void);
struct ibv_mr *key_region(int access);
void key_send(struct ibv_qp *qp, struct ibv_send_wr *wr);
/* The next completion. */
struct ibv_wc key_complete(struct ibv_cq *cq);
struct ibv_wc key_expect(struct ibv_cq *cq, enum ibv_wc_status status);
/* near's signalled WRITE or READ of `length` bytes between the beginning of the buffer and (va,
 * rkey): its status. RC only; after an error near and far are connected again. */
enum ibv_wc_status key_try_reach(enum ibv_wr_opcode op, uint64_t va, uint32_t rkey,
				 uint32_t length);
/* Whether such a WRITE and READ of 8 bytes succeed; the WRITE has put its bytes there. */
void key_reaches(uint64_t va, uint8_t *there, uint32_t rkey);
void key_refused(uint64_t va, uint32_t rkey);
/* Waits until the 8 bytes there are those at the beginning of the buffer (UC). */
void key_await(const uint8_t *there);

static inline uint64_t key_va(uint32_t offset)
{
	return (uintptr_t)bed.bytes + offset;
}

#endif
