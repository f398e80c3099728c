/* guest.h: a few verbs in a few lines, for programs that test what we do to our host. */
#ifndef TEST_FAULT_GUEST_H
#define TEST_FAULT_GUEST_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "../pairs/pairs.h"

enum { GUEST_BYTES = 1 << 20, GUEST_PSN = 5 };

/* A queue pair with what it needs, on a context that may be shared. */
struct guest {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	union ibv_gid gid;
};

/* What the other end must know. */
struct guest_address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t addr;
};

/* Ends the program with status 3 and a line on standard error. */
void guest_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
#define guest_need(truth, ...) ((truth) ? (void)0 : guest_die(__VA_ARGS__))

struct ibv_context *guest_open_device(void);
/* Fills *g: PD, channel, CQ, MR, RC queue pair in INIT with one receive posted. */
void guest_create(struct guest *g, struct ibv_context *context);
struct guest_address guest_address(const struct guest *g);
void guest_connect(struct guest *g, const struct guest_address *to);
/* Both ends in this process. */
void guest_connect_pair(struct guest *a, struct guest *b);
void guest_post_receive(struct guest *g);
void guest_post_send(struct guest *g, uint32_t length);
/* Waits (60 s) for a completion, by polling; its status. */
int guest_poll(struct guest *g);
/* The same by events. */
int guest_await(struct guest *g);
/* A message from a to b, polled for. */
void guest_talk(struct guest *a, struct guest *b);
/* Destroys everything but the context. */
void guest_destroy(struct guest *g);
/* Opens, makes a pair, talks by polling and by events, leaves it in place: all threads that we ever
 * start run then. */
void guest_use_everything(struct guest pair[2]);

/* guest_cancel.c */
void case_cancelled_verbs(void);

#endif
