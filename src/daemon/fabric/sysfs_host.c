/* sysfs_host.c: writes the tree that stands for /sys on a host of the fabric.
 * In:    the fabric's map      Out: files under FOLDER/hosts/NAME/sys, each replaced in one step
 * Runs:  the daemon's only thread      Locks: none
 */
#include "daemon/fabric/sysfs_priv.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct sysfs_text sysfs_host_device[] = {
	{ "node_type", "1: CA\n" },
	{ "fw_ver", "1.0.0\n" },
	{ "hca_type", "anyverbs-ib\n" },
	{ "board_id", "anyverbs\n" },
};

/* ---- a port ---------------------------------------------------------------------------------- */

static void sysfs_host_put_state(struct sysfs *s, const struct fabric_port_attr *p)
{
	static const char *const states[] = { "NOP", "DOWN", "INIT", "ARMED", "ACTIVE" };
	static const char *const phys[] = { "",
					    "Sleep",
					    "Polling",
					    "Disabled",
					    "PortConfigurationTraining",
					    "LinkUp",
					    "LinkErrorRecovery" };

	sysfs_put(s, "state", "%u: %s\n", p->state,
		  p->state < ARRAY_LEN(states) ? states[p->state] : "");
	sysfs_put(s, "phys_state", "%u: %s\n", p->phys,
		  p->phys < ARRAY_LEN(phys) ? phys[p->phys] : "");
}

static void sysfs_host_put_rate(struct sysfs *s, const struct fabric_port_attr *p)
{
	static const struct {
		u8 speed;
		u16 tenths; /* of Gbit/s, a lane */
		const char *name;
	} speeds[] FIXED = { { 1, 25, "" },	   { 2, 50, " DDR" },	 { 4, 100, " QDR" },
			     { 8, 100, " FDR10" }, { 16, 140, " FDR" },	 { 32, 250, " EDR" },
			     { 64, 500, " HDR" },  { 128, 1000, " NDR" } };
	static const u8 widths[][2] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };
	u32 width = 1, tenths = 25;
	const char *name = "";

	for (size_t i = 0; i < ARRAY_LEN(widths); i++)
		if (widths[i][0] == p->width)
			width = widths[i][1];
	for (size_t i = 0; i < ARRAY_LEN(speeds); i++) {
		if (speeds[i].speed != p->speed)
			continue;
		tenths = speeds[i].tenths;
		name = speeds[i].name;
	}
	tenths *= width;
	sysfs_put(s, "rate", "%u%s Gb/sec (%uX%s)\n", tenths / 10, tenths % 10 != 0 ? ".5" : "",
		  width, name);
}

/* As on Linux each entry has a GID, of the interface ID 0 if it is not in use, and a type. Linux
 * fails to read ndevs/N with EINVAL, for the port has no network interface; here it is empty, and
 * shim/devices reads it so. */
static void sysfs_host_put_gids(struct sysfs *s, const struct fabric_port_attr *p)
{
	__be64 gid[2] = { htobe64(p->gid_prefix), 0 };
	char path[64];

	for (u32 i = 0; i < p->guid_count && i < FABRIC_GUIDS; i++) {
		gid[1] = htobe64(i == 0 ? p->guid : p->guids[i]);
		sysfs_put_gid_text(s, (int)i, (const u8 *)gid);
		snprintf(path, sizeof(path), "gid_attrs/types/%u", i);
		sysfs_put(s, path, "IB/RoCE v1\n");
		snprintf(path, sizeof(path), "gid_attrs/ndevs/%u", i);
		sysfs_put(s, path, "%s", "");
	}
}

/* Entries of the table that are not in use have no file: there are many. */
static void sysfs_host_put_pkeys(struct sysfs *s, const struct fabric_port_attr *p)
{
	char path[64];

	for (u32 i = 0; i < p->pkey_count && i < FABRIC_PKEYS; i++) {
		snprintf(path, sizeof(path), "pkeys/%u", i);
		if (p->pkeys[i] != 0 || i == 0)
			sysfs_put(s, path, "0x%04x\n", p->pkeys[i]);
		else
			sysfs_delete(s, path);
	}
}

static void sysfs_host_put_port(struct sysfs *s, const struct fabric_port_attr *p, u32 what)
{
	sysfs_make(s, "gids");
	sysfs_make(s, "pkeys");
	sysfs_make(s, "gid_attrs/types");
	sysfs_make(s, "gid_attrs/ndevs");
	sysfs_host_put_state(s, p);
	sysfs_host_put_rate(s, p);
	sysfs_put(s, "lid", "0x%x\n", p->lid);
	sysfs_put(s, "lid_mask_count", "%u\n", p->lmc);
	sysfs_put(s, "sm_lid", "0x%x\n", p->sm_lid);
	sysfs_put(s, "sm_sl", "%u\n", p->sm_sl);
	sysfs_put(s, "cap_mask", "0x%08x\n", p->cap_mask);
	sysfs_put(s, "link_layer", "InfiniBand\n");
	if (what & FABRIC_CHANGED_GIDS)
		sysfs_host_put_gids(s, p);
	if (what & FABRIC_CHANGED_PKEYS)
		sysfs_host_put_pkeys(s, p);
}

/* ---- a device -------------------------------------------------------------------------------- */

/* A host's tree, as far as it is written. */
struct sysfs_host {
	struct sysfs s;
	const char *host;
	const struct fabric_view *view;
	u32 what;      /* has changed: bits of enum fabric_change */
	u32 mad_files; /* ports so far: the number of the next umadN and issmN */
} OWNED_BY(the daemon);

static void sysfs_host_base(struct sysfs_host *h, const char *folder)
{
	snprintf(h->s.base, sizeof(h->s.base), "hosts/%s/sys/%s", h->host, folder);
}

/* The descriptions come from a topology, which may have anything in them. */
static void sysfs_host_put_desc(struct sysfs *s, const char *desc)
{
	char text[FABRIC_DESC + 1];
	size_t n = strnlen(desc, FABRIC_DESC);

	for (size_t i = 0; i < n; i++)
		text[i] = desc[i] == '\n' ? ' ' : desc[i];
	text[n] = '\0';
	sysfs_put(s, "node_desc", "%s\n", text);
}

static void sysfs_host_put_device(struct sysfs_host *h, u32 index, const struct fabric_node_attr *n)
{
	char path[64];

	snprintf(path, sizeof(path), "devices/anyverbs/ib%u", index);
	sysfs_host_base(h, path);
	sysfs_put_machine(&h->s);
	snprintf(path, sizeof(path), "infiniband/ib%u", index);
	sysfs_make(&h->s, path);
	snprintf(path, sizeof(path), "class/infiniband/ib%u", index);
	sysfs_host_base(h, path);
	sysfs_make(&h->s, "ports");
	snprintf(path, sizeof(path), "ib%u", index);
	sysfs_put_function(&h->s, path);
	sysfs_put_guid(&h->s, "node_guid", n->guid);
	sysfs_put_guid(&h->s, "sys_image_guid", n->sys_guid);
	sysfs_host_put_desc(&h->s, n->desc);
	sysfs_put(&h->s, "hw_rev", "0x%x\n", n->revision);
	sysfs_put_table(&h->s, sysfs_host_device, ARRAY_LEN(sysfs_host_device));
}

/* The character devices of a CA or of one of its ports. */
static void sysfs_host_put_file(struct sysfs_host *h, const char *folder, const char *name,
				u32 number, u32 minor, u32 index, u32 port)
{
	char path[64], device[16];

	/* what the link below leads to is there before it */
	snprintf(path, sizeof(path), "devices/anyverbs/ib%u", index);
	sysfs_host_base(h, path);
	snprintf(path, sizeof(path), "%s/%s%u", strchr(folder, '/') + 1, name, number);
	sysfs_make(&h->s, path);
	snprintf(path, sizeof(path), "%s/%s%u", folder, name, number);
	snprintf(device, sizeof(device), "ib%u", index);
	sysfs_host_base(h, path);
	sysfs_put_function(&h->s, device);
	sysfs_put_numbers(&h->s, minor + number, device, port);
	if (port == 0)
		sysfs_put(&h->s, "abi_version", "1\n");
	sysfs_host_base(h, "dev/infiniband");
	snprintf(path, sizeof(path), "%s%u", name, number);
	sysfs_put(&h->s, path, "%s", "");
}

static void sysfs_host_write_port(struct sysfs_host *h, u32 index, u32 first_port, u32 number)
{
	struct fabric_port_attr p;
	char path[64];

	if (fabric_port_read(h->view, first_port + number, &p) != 0)
		return;
	snprintf(path, sizeof(path), "class/infiniband/ib%u/ports/%u", index, number);
	sysfs_host_base(h, path);
	sysfs_host_put_port(&h->s, &p, h->what);
}

static void sysfs_host_write_device(struct sysfs_host *h, u32 index,
				    const struct fabric_node_attr *n)
{
	sysfs_host_put_device(h, index, n);
	sysfs_host_put_file(h, "class/infiniband_verbs", "uverbs", index, SYSFS_UVERBS_MINOR, index,
			    0);
	for (u32 number = 1; number <= n->ports; number++) {
		sysfs_host_write_port(h, index, n->first_port, number);
		sysfs_host_put_file(h, "class/infiniband_mad", "umad", h->mad_files,
				    SYSFS_UMAD_MINOR, index, number);
		sysfs_host_put_file(h, "class/infiniband_mad", "issm", h->mad_files,
				    SYSFS_ISSM_MINOR, index, number);
		h->mad_files++;
	}
}

/* ---- counters -------------------------------------------------------------------------------- */

static u64 sysfs_host_unicast(u64 all, u64 multicast)
{
	return all - MIN(multicast, all);
}

/* The kernel's names, in units of 4 bytes where it counts data. */
static void sysfs_host_traffic(const struct fabric_counts *c, u64 out[8])
{
	out[0] = c->xmit_bytes / 4;
	out[1] = c->rcv_bytes / 4;
	out[2] = c->xmit_packets;
	out[3] = c->rcv_packets;
	out[4] = sysfs_host_unicast(c->xmit_packets, c->mcast_xmit_packets);
	out[5] = sysfs_host_unicast(c->rcv_packets, c->mcast_rcv_packets);
	out[6] = c->mcast_xmit_packets;
	out[7] = c->mcast_rcv_packets;
}

static const char *const sysfs_host_traffic_names[] = {
	"port_xmit_data",	  "port_rcv_data",	   "port_xmit_packets",
	"port_rcv_packets",	  "unicast_xmit_packets",  "unicast_rcv_packets",
	"multicast_xmit_packets", "multicast_rcv_packets",
};

static const char *const sysfs_host_error_names[FABRIC_ERRORS] = {
	[FABRIC_ERR_SYMBOL] = "symbol_error",
	[FABRIC_ERR_LINK_RECOVERY] = "link_error_recovery",
	[FABRIC_ERR_LINK_DOWNED] = "link_downed",
	[FABRIC_ERR_RCV] = "port_rcv_errors",
	[FABRIC_ERR_RCV_PHYSICAL] = "port_rcv_remote_physical_errors",
	[FABRIC_ERR_RCV_SWITCH_RELAY] = "port_rcv_switch_relay_errors",
	[FABRIC_ERR_XMIT_DISCARDS] = "port_xmit_discards",
	[FABRIC_ERR_XMIT_CONSTRAINT] = "port_xmit_constraint_errors",
	[FABRIC_ERR_RCV_CONSTRAINT] = "port_rcv_constraint_errors",
	[FABRIC_ERR_LOCAL_INTEGRITY] = "local_link_integrity_errors",
	[FABRIC_ERR_BUFFER_OVERRUN] = "excessive_buffer_overrun_errors",
	[FABRIC_ERR_VL15_DROPPED] = "VL15_dropped",
	[FABRIC_ERR_XMIT_WAIT] = "port_xmit_wait",
};

static void sysfs_host_put_counts(struct sysfs *s, const char *const *names, u32 count,
				  const u64 *before, const u64 *now)
{
	for (u32 i = 0; i < count; i++)
		if (before == NULL || before[i] != now[i])
			sysfs_put(s, names[i], "%llu\n", (unsigned long long)now[i]);
}

/* ---- for the fabric's service ---------------------------------------------------------------- */

/* A name that would lead out of its folder. */
static bool sysfs_host_is_odd(const char *host)
{
	return host[0] == '.' || host[0] == '\0' || strchr(host, '/') != NULL;
}

int sysfs_host_write(const struct folder *f, const char *host, const struct fabric_view *v,
		     const u32 *cas, u32 count)
{
	struct sysfs_host h = { .s = { .folder = f }, .host = host, .view = v, .what = ~0u };
	struct fabric_node_attr n;

	if (f->fd < 0)
		return 0;
	if (sysfs_host_is_odd(host))
		return -EINVAL;
	sysfs_host_base(&h, "dev");
	sysfs_make(&h.s, "infiniband");
	for (u32 i = 0; i < count; i++)
		if (fabric_node_read(v, cas[i], &n) == 0)
			sysfs_host_write_device(&h, i, &n);
	sysfs_host_base(&h, "");
	h.s.base[strlen(h.s.base) - 1] = '\0';
	sysfs_put_versions(&h.s);
	return h.s.err;
}

int sysfs_host_write_ports(const struct folder *f, const char *host, const struct fabric_view *v,
			   const u32 *cas, u32 count, u32 what)
{
	struct sysfs_host h = { .s = { .folder = f }, .host = host, .view = v, .what = what };
	struct fabric_node_attr n;

	if (f->fd < 0 || sysfs_host_is_odd(host))
		return 0;
	for (u32 i = 0; i < count; i++) {
		if (fabric_node_read(v, cas[i], &n) != 0)
			continue;
		for (u32 number = 1; number <= n.ports; number++)
			sysfs_host_write_port(&h, i, n.first_port, number);
	}
	return h.s.err;
}

int sysfs_host_write_counts(const struct folder *f, const char *host, u32 ca, u32 port,
			    const struct fabric_counts *before, const struct fabric_counts *now)
{
	struct sysfs_host h = { .s = { .folder = f }, .host = host };
	u64 had[8] = { 0 }, has[8];
	char path[64];

	if (f->fd < 0 || sysfs_host_is_odd(host))
		return 0;
	snprintf(path, sizeof(path), "class/infiniband/ib%u/ports/%u", ca, port);
	sysfs_host_base(&h, path);
	if (before == NULL)
		sysfs_make(&h.s, "counters");
	else
		sysfs_host_traffic(before, had);
	snprintf(path, sizeof(path), "class/infiniband/ib%u/ports/%u/counters", ca, port);
	sysfs_host_base(&h, path);
	sysfs_host_traffic(now, has);
	sysfs_host_put_counts(&h.s, sysfs_host_traffic_names, ARRAY_LEN(sysfs_host_traffic_names),
			      before == NULL ? NULL : had, has);
	sysfs_host_put_counts(&h.s, sysfs_host_error_names, FABRIC_ERRORS,
			      before == NULL ? NULL : before->errors, now->errors);
	return h.s.err;
}
