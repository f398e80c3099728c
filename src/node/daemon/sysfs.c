/* sysfs.c: writes the tree that stands for /sys.
 * In:    the configuration             Out: files under FOLDER/sys, each replaced in one step
 * Runs:  the daemon's only thread      Locks: none
 */
#include "node/daemon/sysfs.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { SYSFS_UVERBS_MINOR = 192 /* of uverbs0 */ };

struct sysfs {
	const struct folder *folder;
	char base[128]; /* in front of each path */
	int err;	/* the first error */
} OWNED_BY(the daemon);

struct sysfs_text {
	const char *path, *text;
} FIXED;

static const struct sysfs_text sysfs_device[] = {
	{ "node_type", "1: CA\n" },
	{ "node_desc", "anyverbs software RoCE adapter\n" },
	{ "fw_ver", "1.0.0\n" },
	{ "hw_rev", "0x1\n" },
	{ "hca_type", "anyverbs-roce\n" },
	{ "board_id", "anyverbs\n" },
	{ "device/numa_node", "-1\n" },
	{ "device/vendor", "0xa7b5\n" },
	{ "device/device", "0x0001\n" },
	{ "device/subsystem_vendor", "0xa7b5\n" },
	{ "device/subsystem_device", "0x0001\n" },
	{ "device/class", "0x020700\n" },
};

static const struct sysfs_text sysfs_port[] = {
	{ "rate", "100 Gb/sec (4X EDR)\n" },
	{ "lid", "0x0\n" },
	{ "lid_mask_count", "0\n" },
	{ "sm_lid", "0x0\n" },
	{ "sm_sl", "0\n" },
	{ "cap_mask", "0x04010000\n" },
	{ "link_layer", "Ethernet\n" },
	{ "pkeys/0", "0xffff\n" },
};

/* Counters of errors on a physical link, which stay 0 here. Counters of traffic are left out: each
 * process has its own (`anyverbs status`). */
static const char *const sysfs_counters[] = {
	"VL15_dropped",
	"excessive_buffer_overrun_errors",
	"link_error_recovery",
	"local_link_integrity_errors",
	"port_rcv_constraint_errors",
	"port_rcv_remote_physical_errors",
	"port_rcv_switch_relay_errors",
	"port_xmit_constraint_errors",
	"port_xmit_wait",
	"symbol_error",
};

static void sysfs_fail(struct sysfs *s, const char *path, int err)
{
	if (s->err == 0)
		log_error("node", "cannot write %s/%s: %s", s->folder->path, path, strerror(-err));
	s->err = s->err == 0 ? err : s->err;
}

static void sysfs_make(struct sysfs *s, const char *path)
{
	char full[256];
	int err;

	snprintf(full, sizeof(full), "%s/%s", s->base, path);
	err = folder_make(s->folder, full);
	if (err < 0)
		sysfs_fail(s, full, err);
}

static void sysfs_put(struct sysfs *s, const char *path, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void sysfs_put(struct sysfs *s, const char *path, const char *fmt, ...)
{
	char full[256], text[512];
	va_list args;
	int err;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	snprintf(full, sizeof(full), "%s/%s", s->base, path);
	err = folder_put(s->folder, full, text);
	if (err < 0)
		sysfs_fail(s, full, err);
}

static void sysfs_put_table(struct sysfs *s, const struct sysfs_text *table, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sysfs_put(s, table[i].path, "%s", table[i].text);
}

static void sysfs_put_guid(struct sysfs *s, const char *path, u64 guid)
{
	sysfs_put(s, path, "%04x:%04x:%04x:%04x\n", (unsigned)(guid >> 48),
		  (unsigned)(guid >> 32 & 0xffff), (unsigned)(guid >> 16 & 0xffff),
		  (unsigned)(guid & 0xffff));
}

/* Writes gids/N for every entry of the table; gid_attrs only for those in use, since the kernel
 * refuses to read the others. */
static void sysfs_put_gid(struct sysfs *s, int i, const struct node_gid *g)
{
	static const u8 empty[16];
	char path[64], text[64];
	u16 word[8];

	memcpy(word, g->gid, 16);
	for (int w = 0; w < 8; w++)
		snprintf(text + 5 * w, sizeof(text) - 5 * (size_t)w, "%04x%s", ntohs(word[w]),
			 w < 7 ? ":" : "\n");
	snprintf(path, sizeof(path), "gids/%d", i);
	sysfs_put(s, path, "%s", text);
	for (int attr = 0; attr < 2; attr++) {
		char full[256];

		snprintf(path, sizeof(path), "gid_attrs/%s/%d", attr == 0 ? "types" : "ndevs", i);
		snprintf(full, sizeof(full), "%s/%s", s->base, path);
		if (memcmp(g->gid, empty, 16) == 0 || (attr == 1 && g->ifname[0] == '\0'))
			folder_delete(s->folder, full);
		else
			sysfs_put(s, path, "%s\n", attr == 0 ? "RoCE v2" : g->ifname);
	}
}

static void sysfs_write_port(struct sysfs *s, const struct node_config *c)
{
	char path[64];

	sysfs_make(s, "gids");
	sysfs_make(s, "pkeys");
	sysfs_make(s, "gid_attrs/types");
	sysfs_make(s, "gid_attrs/ndevs");
	sysfs_make(s, "counters");
	sysfs_make(s, "hw_counters");
	sysfs_put(s, "state", "%s\n", c->port_up ? "4: ACTIVE" : "1: DOWN");
	sysfs_put(s, "phys_state", "%s\n", c->port_up ? "5: LinkUp" : "3: Disabled");
	sysfs_put_table(s, sysfs_port, ARRAY_LEN(sysfs_port));
	for (int i = 0; i < NODE_GIDS; i++)
		sysfs_put_gid(s, i, &c->gids[i]);
	for (size_t i = 0; i < ARRAY_LEN(sysfs_counters); i++) {
		snprintf(path, sizeof(path), "counters/%s", sysfs_counters[i]);
		sysfs_put(s, path, "0\n");
	}
	sysfs_put(s, "counters/link_downed", "%u\n", c->port_downs);
}

/* Writes the host's CPUs in the kernel's format of a mask: words of 32 bits, the highest first. */
static void sysfs_put_cpus(struct sysfs *s)
{
	long count = sysconf(_SC_NPROCESSORS_CONF);
	char text[512] = "";
	size_t n = 0;

	count = count < 1 ? 1 : MIN(count, 1024);
	for (long word = (count - 1) / 32; word >= 0; word--) {
		long bits = MIN(count - word * 32, 32);
		u32 mask = bits == 32 ? ~0u : (1u << bits) - 1;

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%0*x", n > 0 ? "," : "",
				      bits == 32 || n > 0 ? 8 : (int)((bits + 3) / 4), mask);
	}
	sysfs_put(s, "device/local_cpus", "%s\n", text);
	sysfs_put(s, "device/local_cpulist", count > 1 ? "0-%ld\n" : "%ld\n", count - 1);
}

static void sysfs_write_device(struct sysfs *s, const struct node_config *c)
{
	char path[128];

	sysfs_make(s, "device/infiniband");
	sysfs_put_guid(s, "node_guid", c->node_guid);
	sysfs_put_guid(s, "sys_image_guid", c->node_guid);
	sysfs_put_table(s, sysfs_device, ARRAY_LEN(sysfs_device));
	sysfs_put_cpus(s);
	snprintf(path, sizeof(path), "device/infiniband/%s", c->device);
	sysfs_make(s, path);
	snprintf(path, sizeof(path), "device/infiniband_verbs/%s", c->dev_path);
	sysfs_make(s, path);
	for (int i = 0; i < NODE_GIDS; i++) {
		if (c->gids[i].ifname[0] == '\0')
			continue;
		snprintf(path, sizeof(path), "device/net/%s", c->gids[i].ifname);
		sysfs_make(s, path);
	}
}

/* The number of the character device is the kernel's for uverbsN. */
static void sysfs_write_uverbs(struct sysfs *s, const struct node_config *c)
{
	unsigned number = 0;

	(void)sscanf(c->dev_path, "uverbs%2u", &number);
	sysfs_put(s, "dev", "231:%u\n", SYSFS_UVERBS_MINOR + number);
	sysfs_put(s, "ibdev", "%s\n", c->device);
	sysfs_put(s, "abi_version", "1\n");
}

int sysfs_write(const struct folder *f, const struct node_config *c)
{
	struct sysfs s = { .folder = f };

	if (f->fd < 0)
		return 0;
	snprintf(s.base, sizeof(s.base), "sys/class/infiniband/%s", c->device);
	sysfs_write_device(&s, c);
	snprintf(s.base, sizeof(s.base), "sys/class/infiniband/%s/ports/1", c->device);
	sysfs_write_port(&s, c);
	snprintf(s.base, sizeof(s.base), "sys/class/infiniband_verbs/%s", c->dev_path);
	sysfs_make(&s, "device");
	sysfs_write_uverbs(&s, c);
	snprintf(s.base, sizeof(s.base), "sys/class/infiniband_verbs");
	sysfs_put(&s, "abi_version", "6\n");
	/* the counterpart of /dev/infiniband: device files only */
	snprintf(s.base, sizeof(s.base), "sys/dev");
	sysfs_make(&s, "infiniband");
	snprintf(s.base, sizeof(s.base), "sys/dev/infiniband");
	sysfs_put(&s, c->dev_path, "%s", "");
	return s.err;
}

void sysfs_remove(const struct folder *f, const struct node_config *c)
{
	char path[128];

	if (f->fd < 0)
		return;
	snprintf(path, sizeof(path), "sys/class/infiniband/%s", c->device);
	folder_remove_tree(f, path);
	snprintf(path, sizeof(path), "sys/class/infiniband_verbs/%s", c->dev_path);
	folder_remove_tree(f, path);
	snprintf(path, sizeof(path), "sys/dev/infiniband/%s", c->dev_path);
	folder_delete(f, path);
}
