/* sysfs.c: writes the tree that stands for /sys.
 * In:    the configuration             Out: files under FOLDER/sys, each replaced in one step
 * Runs:  the daemon's only thread      Locks: none
 */
#include "daemon/fabric/sysfs_priv.h"

#include <stdio.h>
#include <string.h>

static const struct sysfs_text sysfs_device[] = {
	{ "node_type", "1: CA\n" },	   { "node_desc", "anyverbs software RoCE adapter\n" },
	{ "fw_ver", "1.0.0\n" },	   { "hw_rev", "0x1\n" },
	{ "hca_type", "anyverbs-roce\n" }, { "board_id", "anyverbs\n" },
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

/* Writes the files of one entry of the table, in use or not. What the kernel refuses to read with
 * EINVAL is empty here: the type and the interface of no GID. shim/devices reads so. */
static void sysfs_put_gid(struct sysfs *s, int i, const struct node_gid *g)
{
	static const u8 empty[16];
	bool used = memcmp(g->gid, empty, 16) != 0, named = used && g->ifname[0] != '\0';
	char path[64];

	sysfs_put_gid_text(s, i, g->gid);
	snprintf(path, sizeof(path), "gid_attrs/types/%d", i);
	sysfs_put(s, path, "%s", used ? "RoCE v2\n" : "");
	snprintf(path, sizeof(path), "gid_attrs/ndevs/%d", i);
	sysfs_put(s, path, "%s%s", named ? g->ifname : "", named ? "\n" : "");
}

static void sysfs_write_port(struct sysfs *s, const struct node_config *c)
{
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
	/* What nobody counts has no file: there is no physical link whose errors could count.
	 * Traffic: sysfs_write_traffic. */
	sysfs_put(s, "counters/link_downed", "%u\n", c->port_downs);
}

/* That of uverbsN and umadN, as the kernel counts them. */
static unsigned sysfs_number(const struct node_config *c)
{
	unsigned number = 0;

	(void)sscanf(c->dev_path, "uverbs%2u", &number);
	return number;
}

/* What the adapter's function on a bus would be: `device` leads to it. */
static void sysfs_write_function(struct sysfs *s, const struct node_config *c)
{
	char path[128];

	sysfs_put_machine(s);
	snprintf(path, sizeof(path), "infiniband/%s", c->device);
	sysfs_make(s, path);
	snprintf(path, sizeof(path), "infiniband_verbs/%s", c->dev_path);
	sysfs_make(s, path);
	snprintf(path, sizeof(path), "infiniband_mad/umad%u", sysfs_number(c));
	sysfs_make(s, path);
	for (int i = 0; i < NODE_GIDS; i++) {
		if (c->gids[i].ifname[0] == '\0')
			continue;
		snprintf(path, sizeof(path), "net/%s", c->gids[i].ifname);
		sysfs_make(s, path);
	}
}

static void sysfs_write_device(struct sysfs *s, const struct node_config *c)
{
	sysfs_put_guid(s, "node_guid", c->node_guid);
	sysfs_put_guid(s, "sys_image_guid", c->node_guid);
	sysfs_put_table(s, sysfs_device, ARRAY_LEN(sysfs_device));
	sysfs_put_function(s, c->device);
}

/* uverbsN and umadN */
static void sysfs_write_files(struct sysfs *s, const struct node_config *c)
{
	unsigned number = sysfs_number(c);

	snprintf(s->base, sizeof(s->base), "sys/class/infiniband_verbs/%s", c->dev_path);
	sysfs_put_function(s, c->device);
	sysfs_put_numbers(s, SYSFS_UVERBS_MINOR + number, c->device, 0);
	sysfs_put(s, "abi_version", "1\n");
	snprintf(s->base, sizeof(s->base), "sys/class/infiniband_mad/umad%u", number);
	sysfs_put_function(s, c->device);
	sysfs_put_numbers(s, SYSFS_UMAD_MINOR + number, c->device, 1);
	snprintf(s->base, sizeof(s->base), "sys");
	sysfs_put_versions(s);
	/* the counterpart of /dev/infiniband: device files only */
	sysfs_make(s, "dev/infiniband");
	snprintf(s->base, sizeof(s->base), "sys/dev/infiniband");
	sysfs_put(s, c->dev_path, "%s", "");
}

int sysfs_write(const struct folder *f, const struct node_config *c)
{
	struct sysfs s = { .folder = f };

	if (f->fd < 0)
		return 0;
	snprintf(s.base, sizeof(s.base), "sys/devices/anyverbs/%s", c->device);
	sysfs_write_function(&s, c);
	/* first a folder, for the link lies in it */
	snprintf(s.base, sizeof(s.base), "sys/class/infiniband/%s", c->device);
	sysfs_make(&s, "ports/1");
	sysfs_write_device(&s, c);
	snprintf(s.base, sizeof(s.base), "sys/class/infiniband/%s/ports/1", c->device);
	sysfs_write_port(&s, c);
	sysfs_write_files(&s, c);
	return s.err;
}

/* Data is in units of 4 bytes, as the kernel has it. */
static const struct {
	const char *path;
	u32 unit;
} sysfs_traffic[TRAFFIC_COUNTS] FIXED = {
	[TRAFFIC_XMIT_PACKETS] = { "port_xmit_packets", 1 },
	[TRAFFIC_XMIT_BYTES] = { "port_xmit_data", 4 },
	[TRAFFIC_RCV_PACKETS] = { "port_rcv_packets", 1 },
	[TRAFFIC_RCV_BYTES] = { "port_rcv_data", 4 },
	[TRAFFIC_RCV_ERRORS] = { "port_rcv_errors", 1 },
	[TRAFFIC_XMIT_DISCARDS] = { "port_xmit_discards", 1 },
};

int sysfs_write_traffic(const struct folder *f, const char *device,
			const struct path_traffic *before, const struct path_traffic *now)
{
	struct sysfs s = { .folder = f };

	if (f->fd < 0)
		return 0;
	snprintf(s.base, sizeof(s.base), "sys/class/infiniband/%s/ports/1/counters", device);
	for (u32 i = 0; i < TRAFFIC_COUNTS; i++)
		if (before == NULL || before->count[i] != now->count[i])
			sysfs_put(&s, sysfs_traffic[i].path, "%llu\n",
				  (unsigned long long)(now->count[i] / sysfs_traffic[i].unit));
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
	snprintf(path, sizeof(path), "sys/class/infiniband_mad/umad%u", sysfs_number(c));
	folder_remove_tree(f, path);
	/* behind the links that lead to it */
	snprintf(path, sizeof(path), "sys/devices/anyverbs/%s", c->device);
	folder_remove_tree(f, path);
	snprintf(path, sizeof(path), "sys/dev/infiniband/%s", c->dev_path);
	folder_delete(f, path);
}
