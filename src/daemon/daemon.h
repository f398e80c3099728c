/* daemon.h: the node's daemon, as its main program sees it. */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include "base/compiler.h"
#include "node/address.h"
#include "node/place.h"

struct daemon_options {
	char node[NODE_NAME_MAX];
	u64 idle_ns;  /* ends after this time without a process; UINT64_MAX: never */
	u64 rest_ns;  /* time for which a slot rests before it is reused */
	bool spawned; /* started by a library: messages go to a file in the folder */
	/* descriptors 3 and 4 are the listening socket and the locked folder of the node before */
	bool successor;
	enum place_scope scope; /* whose processes it serves */
} OWNED_BY(the daemon);

/* Reads ANYVERBS_NODE, ANYVERBS_IDLE_S and ANYVERBS_REST_S. -EINVAL if the name is bad. */
int daemon_options_init(struct daemon_options *o);
/* Runs until idle, told to stop, or a signal. 0; -EADDRINUSE: this node is up already; else why it
 * could not begin. */
int daemon_run(const struct daemon_options *o);

#endif
