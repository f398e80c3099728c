/* raw_bed.h: raw packet queue pairs on an interface of the test's own: a network namespace with one
 * end of a veth pair for the adapter, "va"; the other end, "vb", is the wire.
 */
#ifndef TEST_VERBS_RAW_BED_H
#define TEST_VERBS_RAW_BED_H

#include "pair.h"

enum { RAW_ROOM = 2048, RAW_SLOTS = 8, RAW_WAIT_MS = 5000, RAW_QUIET = 60, RAW_FRAME = 128,
       RAW_SKIPPED = 77 };

/* A queue pair in RTS and what it stands on. */
struct raw_end {
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* of receives */
	struct ibv_cq *scq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory; /* RAW_SLOTS receive buffers of RAW_ROOM bytes, then one for sending */
};

/* A rule's attributes with up to three specifications behind them. */
struct raw_rule {
	struct ibv_flow_attr attr;
	uint8_t specs[3 * sizeof(struct ibv_flow_spec)];
};

extern struct ibv_context *raw_ctx;

/* First of all in main(): the namespace, the interfaces, a node. False: this user may not. */
bool raw_bed_make(void);
void raw_bed_open(void);
void raw_bed_close(void);

struct ibv_qp_init_attr raw_init(const struct raw_end *e);
/* With queue pair, in RTS, with `receives` receive requests of RAW_ROOM bytes, wr_id from 0. */
void raw_open(struct raw_end *e, uint32_t receives);
void raw_close(struct raw_end *e);
void raw_post_recv(struct raw_end *e, uint64_t slot, uint32_t length);
int raw_modify(struct ibv_qp *qp, enum ibv_qp_state to);

/* An IPv4 UDP frame of RAW_FRAME bytes to the MAC 02:00:00:00:00:`to`. */
void raw_frame(uint8_t *frame, uint8_t to, uint16_t port);
void raw_send_bytes(struct raw_end *e, const uint8_t *frame, uint32_t length);
void raw_send(struct raw_end *e, uint8_t to, uint16_t port);
/* The status of the one send that completes. */
enum ibv_wc_status raw_sent(struct raw_end *e);

/* A rule of a type and priority, without specifications. */
struct raw_rule raw_rule(enum ibv_flow_attr_type type, uint16_t priority);
void raw_add(struct raw_rule *r, const void *spec, uint16_t size);
void raw_add_mac(struct raw_rule *r, uint8_t to);
/* NORMAL, to that MAC. */
struct ibv_flow *raw_flow(struct raw_end *e, uint8_t to, uint16_t priority);

/* Waits for one completion; false: none came. */
bool raw_poll(struct ibv_cq *cq, struct ibv_wc *wc);
/* The next receive is of this frame, whole. */
void raw_expect(struct raw_end *e, const uint8_t *frame, uint32_t length);
void raw_expect_to(struct raw_end *e, uint8_t to, uint16_t port);
void raw_expect_none(struct raw_end *e);

/* The other end of the wire: a packet socket on "vb". */
int raw_wire(void);
void raw_wire_send(int fd, const uint8_t *frame, uint32_t length);
/* The next frame whose destination MAC is 02:00:00:00:00:`to`: its length, 0: none came. */
uint32_t raw_wire_receive(int fd, uint8_t to, uint8_t *frame);

#endif
