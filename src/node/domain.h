/* domain.h: XRC domains of files: one for all processes of a node that open the same file.
 *
 * A domain is a name, made of the device and of the file's inode, and who has it open holds a read
 * lock on the name's byte of the slots file (bind.h). So the kernel knows whether a domain exists,
 * a process that dies leaves its domains, and neither the node nor its end has a part in it.
 */
#ifndef NODE_DOMAIN_H
#define NODE_DOMAIN_H

#include <sys/types.h>

#include "base/list.h"

/* A domain that this process has open, embedded in whose it is. */
struct node_domain {
	struct list_head node; /* of the process' domains */
	u64 name;
	int fd; /* of the file, so that no other one gets its inode meanwhile */
} OWNED_BY(domain_table.lock);

/* Which file, on which device. */
struct node_domain_file {
	u64 device; /* the device's GUID, host order */
	dev_t dev;
	ino_t ino;
	int fd;
} OWNED_BY(the caller);

/* Opens the domain of a file, once for this process; *d is the caller's and stays where it is.
 * `create`, `exclusive`: as O_CREAT and O_EXCL. -EAGAIN: no process has it open, and `create` is
 * not set; -EINVAL: another process has, and `exclusive` is set; -EMFILE, -ENFILE; -EBADF: no file;
 * -ENOLCK. May block shortly. */
int node_domain_open(struct node_domain *d, const struct node_domain_file *file, bool create,
		     bool exclusive);
void node_domain_close(struct node_domain *d);
/* The number by which all processes know the domain: 62 bits, and never less than 2^61. */
u64 node_domain_number(const struct node_domain *d);

/* ---- for the node's client ---- */

/* The slots file may be another one: the names are taken there again. */
void domain_renew(void);

#endif
