/* sysfs_priv.h: how the trees that stand for /sys are written; private to sysfs*.c.
 *
 *      sysfs.c  the RoCE devices of the node
 * sysfs_host.c  the CAs of one host of the fabric
 * sysfs_file.c  single files
 */
#ifndef DAEMON_FABRIC_SYSFS_PRIV_H
#define DAEMON_FABRIC_SYSFS_PRIV_H

#include "daemon/fabric/sysfs.h"

/* Minor numbers of the kernel's character devices of major number 231. */
enum { SYSFS_UMAD_MINOR = 0, SYSFS_ISSM_MINOR = 64, SYSFS_UVERBS_MINOR = 192 };

struct sysfs {
	const struct folder *folder;
	char base[192]; /* in front of each path */
	int err;	/* the first error */
} OWNED_BY(the daemon);

struct sysfs_text {
	const char *path, *text;
} FIXED;

/* Each notes an error in *s, and logs the first. */
void sysfs_make(struct sysfs *s, const char *path);
void sysfs_put(struct sysfs *s, const char *path, const char *fmt, ...) PRINTF_LIKE(3, 4);
void sysfs_put_table(struct sysfs *s, const struct sysfs_text *table, size_t count);
void sysfs_put_guid(struct sysfs *s, const char *path, u64 guid);
/* A symbolic link with the text `to`. */
void sysfs_link(struct sysfs *s, const char *path, const char *to);
void sysfs_delete(struct sysfs *s, const char *path);
/* gids/I. */
void sysfs_put_gid_text(struct sysfs *s, int i, const u8 gid[16]);
/* What all adapters of this machine have alike, below devices/anyverbs/DEVICE: what an adapter's
 * `device` leads to. Makes the folder. */
void sysfs_put_machine(struct sysfs *s);
/* Makes the folder, with the link `device` to what the adapter's function on a bus would be. */
void sysfs_put_function(struct sysfs *s, const char *device);
/* Of a character device: its number, its RDMA device and, unless 0, its port. */
void sysfs_put_numbers(struct sysfs *s, u32 minor, const char *device, u32 port);
/* The versions of the kernel's interfaces; below the tree's folder. */
void sysfs_put_versions(struct sysfs *s);

#endif
