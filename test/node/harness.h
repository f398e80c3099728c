/* harness.h: what the tests of the node share: a node of their own, and raw looks at it. */
#ifndef TEST_NODE_HARNESS_H
#define TEST_NODE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/process_test.h"
#include "node/client_priv.h"

/* For what must happen, however busy the machine: nothing waits so long unless it is lost. */
enum { HARNESS_PATIENCE_MS = 60000 };
#define HARNESS_PATIENCE_NS (HARNESS_PATIENCE_MS * NS_PER_MS)

/* A process' own things, as node_attach wants them. */
struct harness {
	struct node_self self;
	struct node *node;
};

/* A fresh ANYVERBS_NODE for each test, in a folder of its own; ends its daemon afterwards. */
int harness_setup(void **state);
int harness_teardown(void **state);
/* What a process shows of itself: this board, and new bells. */
struct node_self harness_self(int board_fd);
/* node_attach with a new board and bells; fails the test if it fails. */
void harness_attach(struct harness *h);
/* As a process that takes no packets through shared memory. */
void harness_attach_by_wire(struct harness *h);
void harness_detach(struct harness *h);
/* Closes what harness_detach would, without a word to the node: for a child of fork. */
void harness_drop(struct harness *h);
/* The daemon's pid; 0: no node is up. */
int harness_daemon(void);
void harness_kill_daemon(void);
/* A raw connection to the node: descriptor. */
int harness_connect(void);
/* What the node says of itself. */
struct proto_status_reply harness_status(void);
/* What has become of the node's addresses, and all UDP sockets of the network namespace, on
 * standard error: for a test that is about to fail. */
void harness_print_addresses(void);
/* Waits for an event of this type; others are passed over. Fails the test if it does not
 * come. */
struct node_event harness_wait_event(struct harness *h, enum node_event_type type);
bool harness_readable(int fd, int timeout_ms);
/* The number that the next descriptor of this process gets: a limit of so many leaves it none. */
int harness_lowest_fd(void);
bool harness_same_file(int a, int b);
void harness_close_peer(struct node_peer *peer);

#endif
