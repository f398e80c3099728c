/* loop.h: the daemon's loop: descriptors and their handlers. */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include "base/compiler.h"

/* A watched descriptor. Embedded in its owner, which any handler may free: the loop takes one event
 * at a time. */
struct loop_source {
	int fd;
	void (*fn)(struct loop_source *s, u32 events);
} OWNED_BY(the daemon);

struct loop {
	int fd;
	bool stop;
} OWNED_BY(the daemon);

int loop_init(struct loop *l);
void loop_destroy(struct loop *l);
int loop_add(struct loop *l, struct loop_source *s, int fd, u32 events,
	     void (*fn)(struct loop_source *s, u32 events));
void loop_change(struct loop *l, struct loop_source *s, u32 events);
void loop_remove(struct loop *l, struct loop_source *s);
/* Waits for one event, at most timeout_ms (-1: for ever), and handles it. */
void loop_turn(struct loop *l, int timeout_ms);

#endif
