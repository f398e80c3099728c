/* hosts.h: the ports of a fabric's hosts that processes are on, for `status`, `top` and `qp`. */
#ifndef ANYVERBS_HOSTS_H
#define ANYVERBS_HOSTS_H

#include "command.h"
#include "fabric/fabric.h"

enum { HOSTS_MAX = 256 /* hosts that are shown */, HOSTS_PORT_NAME = NODE_HOST_NAME + 24 };

/* A port of a channel adapter. */
struct host_port {
	char host[NODE_HOST_NAME];
	char device[8];		    /* as programs see it: ib0 */
	char name[HOSTS_PORT_NAME]; /* h1 ib0, or h1 ib0:2 where the adapter has more than one */
	char guid[20];		    /* of the port, in hexadecimal */
	u64 prefix, port_guid;	    /* the halves of its first GID */
	u32 number;
	u32 lid; /* 0: none yet */
	u32 ip; /* of rdma_cm programs, in host byte order; 0: none */
	u32 mtu; /* bytes */
	const char *state; /* as plan_state has it */
	struct fabric_counts counts;
} OWNED_BY(the survey);

struct hosts {
	bool fabric; /* the node carries one */
	struct host_port *ports; /* of each host, in the order of its first process */
	u32 count;
	u32 used; /* hosts */
} OWNED_BY(the survey);

/* Asks the node for the fabric, and reads the ports of the hosts that the processes name: the first
 * HOSTS_MAX of them. The caller frees *out by hosts_free, also after a failure. 0, also without a
 * fabric; a negative errno. */
int hosts_ask(int fd, const struct proto_record *records, u32 count, struct hosts *out);
void hosts_free(struct hosts *h);
/* The port of that name; NULL: none. */
const struct host_port *hosts_find(const struct hosts *h, const char *name);
/* The only port of a host; NULL: it has none, or more than one. */
const struct host_port *hosts_only_port(const struct hosts *h, const char *host);
/* The port whose first GID it is; NULL: none. */
const struct host_port *hosts_with_gid(const struct hosts *h, const u8 gid[16]);
bool hosts_port_active(const struct host_port *p);

/* For `status`. */
void hosts_print(const struct hosts *h);
/* The member "hosts" of the node's object, with a comma behind it. */
void hosts_print_json(const struct hosts *h);

#endif
