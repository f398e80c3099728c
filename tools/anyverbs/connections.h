/* connections.h: the connections of processes, as their wills have them, for `status`. */
#ifndef ANYVERBS_CONNECTIONS_H
#define ANYVERBS_CONNECTIONS_H

#include "node/protocol.h"

struct survey;

/* Of one process. */
struct connections {
	struct proto_connection *all; /* in the order of their places */
	u32 count;
};

/* Asks the node behind `fd`. 0; -ENOMEM; -EPROTO; another errno of the request. A process that has
 * just ended has none. The caller frees the result by connections_free, also after a failure. */
int connections_ask(int fd, u64 process, struct connections *out);
void connections_free(struct connections *c);
/* Prints a line for each; some only if there are many. The survey says whose GID an address is. */
void connections_print(const struct connections *c, const struct survey *s);
/* Prints a member of the process' JSON object, with a comma in front. */
void connections_print_json(const struct connections *c, const struct survey *s);

#endif
