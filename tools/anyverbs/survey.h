/* survey.h: what the node and its processes show at one moment, for `status`, `top` and `qp`. */
#ifndef ANYVERBS_SURVEY_H
#define ANYVERBS_SURVEY_H

#include "command.h"
#include "connections.h"
#include "hosts.h"
#include "listeners.h"
#include "view.h"

/* The node's replies, and what its processes show. */
struct survey {
	struct proto_status_reply node;
	struct proto_addresses_reply addresses;
	struct node_config devices[NODE_DEVICES]; /* the first ones, without gaps */
	u32 indexes[NODE_DEVICES]; /* the node's numbers of them */
	char guids[NODE_DEVICES][20]; /* in hexadecimal */
	u32 device_count;
	struct proto_record *records;
	struct view *views; /* of the same processes */
	struct connections *connections; /* likewise */
	struct listeners listeners;
	struct hosts hosts; /* those that its processes are on */
	u32 count;
} OWNED_BY(the caller);

/* Asks the node, and reads the processes' boards. Texts are clean. 0; -ECONNREFUSED: no node is up;
 * another negative errno. Does not start a node. The caller frees the result by survey_free, also
 * after a failure. */
int survey_take(struct survey *s);
void survey_free(struct survey *s);
/* The device of a GID by its number among all of the node's, as boards have it; NULL: none. */
const struct node_config *survey_device(const struct survey *s, u32 gid_index);
/* The name of the device that has the GID; "-": it is gone, or another host's. */
const char *survey_device_of(const struct survey *s, const u8 gid[16]);

#endif
