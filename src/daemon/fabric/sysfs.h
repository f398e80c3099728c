/* sysfs.h: the tree that stands for /sys: class/infiniband, class/infiniband_verbs and
 * class/infiniband_mad, in the kernel's formats, and devices/anyverbs, to whose folders the links
 * `device` of each of them lead. */
#ifndef DAEMON_FABRIC_SYSFS_H
#define DAEMON_FABRIC_SYSFS_H

#include "fabric/fabric.h"
#include "daemon/folder.h"
#include "node/node.h"
#include "path/path.h"

/* Writes or updates the device's part of FOLDER/sys. 0 or a negative errno (the tree is then
 * incomplete, which is logged). */
int sysfs_write(const struct folder *f, const struct node_config *c);
/* Updates those of the device's counters/ whose number is another one than in *before; NULL:
 * all. */
int sysfs_write_traffic(const struct folder *f, const char *device,
			const struct path_traffic *before, const struct path_traffic *now);
/* Deletes the device's part. */
void sysfs_remove(const struct folder *f, const struct node_config *c);

/* Writes or updates the tree of a host of the fabric, FOLDER/hosts/HOST/sys, with its CAs as ib0
 * and up. 0; -EINVAL: the host's name is none of a folder; or as above. */
int sysfs_host_write(const struct folder *f, const char *host, const struct fabric_view *v,
		     const u32 *cas, u32 count);
/* Updates what changes in it: the ports. what: bits of enum fabric_change. */
int sysfs_host_write_ports(const struct folder *f, const char *host, const struct fabric_view *v,
			   const u32 *cas, u32 count, u32 what);

/* Updates counters/ of one port of a CA: those files whose number is another one than in *before;
 * NULL: all. */
int sysfs_host_write_counts(const struct folder *f, const char *host, u32 ca, u32 port,
			    const struct fabric_counts *before, const struct fabric_counts *now);

#endif
