/* listeners.h: who listens for connections, as the node's directory shows it, for `status`. */
#ifndef ANYVERBS_LISTENERS_H
#define ANYVERBS_LISTENERS_H

#include "node/directory.h"

struct listeners {
	struct directory_listener *all; /* by process, port space and port, each once */
	u32 count;
};

/* Reads the directory behind `fd`. 0; -EPROTO: it is none; -ENOMEM. The caller frees the result
 * by listeners_free. */
int listeners_read(int fd, struct listeners *out);
void listeners_free(struct listeners *l);
/* Prints a line of what the process listens on, if it listens. */
void listeners_print(const struct listeners *l, u64 process);
/* Prints a member of the process' JSON object, with a comma in front. */
void listeners_print_json(const struct listeners *l, u64 process);

/* The port space of a service ID; NULL: it is not one of the RDMA CM's. */
const char *service_space(u64 service_id);

#endif
