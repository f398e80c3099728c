/* config.c: GUID, GIDs, MTU and link.
 * In:    machine-id or host name, user, node, network namespace; struct host; ANYVERBS_ADDR
 * Out:   struct node_config
 * Runs:  the daemon's only thread
 * Locks: none
 * Spec:  IBA vol 1, 4.1.1 (GID); annex A17.4.1 (RoCEv2 addresses)
 */
#include "daemon/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "node/address.h"
#include "node/udp_socket.h"

enum {
	CONFIG_GIDS_MAX = NODE_GIDS - 1, /* one entry stays empty, at least */
	CONFIG_TOLD_TEXT = 4096,
	CONFIG_MTU_MIN = 256,
	CONFIG_MTU_MAX = 4096,
	/* Bytes that Linux' rxe reserves for headers of any kind: IP 40, UDP 8, BTH 12, RETH 16,
	 * ICRC 4. Over IPv6 a WRITE with immediate data needs 4 more */
	CONFIG_HEADERS_V4 = 80,
	CONFIG_HEADERS_V6 = 84,
};

/* FNV-1a. */
static u64 config_hash(u64 h, const void *data, size_t size)
{
	const u8 *p = data;

	for (size_t i = 0; i < size; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

/* Spreads the entropy over all bits: FNV's high bits are poor for short input. */
static u64 config_mix(u64 h)
{
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
	return h ^ (h >> 31);
}

/* The machine-id, or the host's name where there is none. */
static size_t config_machine(char *out, size_t size)
{
	int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
	ssize_t n = 0;

	memset(out, 0, size);
	if (fd >= 0) {
		n = read(fd, out, size);
		close(fd);
	}
	if (n < 32 && gethostname(out, size - 1) == 0)
		n = (ssize_t)strlen(out);
	return n > 0 ? (size_t)n : 0;
}

u64 config_guid(const char *node, const char *device)
{
	char machine[64];
	u64 h = config_hash(0xcbf29ce484222325ull, machine,
			    config_machine(machine, sizeof(machine)));
	u64 ns = address_net_ns(), users = address_user_ns();
	u32 uid = geteuid();

	h = config_hash(h, &uid, sizeof(uid));
	h = config_hash(h, node, strlen(node));
	h = config_hash(h, &ns, sizeof(ns));
	/* in a user namespace the same UID is another user */
	if (users != 0)
		h = config_hash(h, &users, sizeof(users));
	/* the GUID of roce0 keeps the value from before there were other devices */
	if (strcmp(device, "roce0") != 0)
		h = config_hash(h, device, strlen(device));
	h = config_mix(h);
	/* clear bit 0 of the first byte (group), set bit 1 (locally administered) */
	h &= ~(1ull << 56);
	return h | 1ull << 57;
}

static void config_guid_gid(u64 guid, u8 gid[16])
{
	static const u8 link_local[8] = { 0xfe, 0x80 };

	memcpy(gid, link_local, 8);
	for (int i = 0; i < 8; i++)
		gid[8 + i] = (u8)(guid >> (56 - 8 * i));
}

/* A loopback address of the node's own: 127.x.y.z with x, y, z from its GUID. */
static u32 config_own_v4(u64 guid)
{
	u64 h = config_mix(guid);
	u32 x = 1 + (u32)(h % 255), y = (u32)(h >> 16) % 256, z = 1 + (u32)((h >> 32) % 254);

	return htonl(127u << 24 | x << 16 | y << 8 | z);
}

static bool config_has(const struct node_config *c, int count, const u8 gid[16])
{
	for (int i = 0; i < count; i++)
		if (memcmp(c->gids[i].gid, gid, 16) == 0)
			return true;
	return false;
}

u32 config_mtu(const u8 gid[16], u32 ip_mtu)
{
	u32 mtu = CONFIG_MTU_MAX;
	u32 headers = node_udp_gid_is_v4(gid) ? CONFIG_HEADERS_V4 : CONFIG_HEADERS_V6;

	while (mtu > CONFIG_MTU_MIN && mtu + headers > ip_mtu)
		mtu /= 2;
	return mtu;
}

/* Appends a GID unless the table holds it or is full. */
static void config_add(struct node_config *c, int *count, const u8 gid[16],
		       const struct host_interface *link)
{
	struct node_gid *g = &c->gids[*count];

	if (*count >= CONFIG_GIDS_MAX || config_has(c, *count, gid))
		return;
	memcpy(g->gid, gid, 16);
	g->mtu = CONFIG_MTU_MAX;
	if (link != NULL) {
		g->ifindex = link->ifindex;
		memcpy(g->ifname, link->name, sizeof(g->ifname));
		memcpy(g->mac, link->mac, sizeof(g->mac));
		g->mtu = config_mtu(gid, link->mtu);
		g->flags = link->running ? NODE_GID_LINK : 0;
	}
	(*count)++;
}

/* Appends an address unless another node has it. */
static void config_add_address(struct node_config *c, int *count, const struct config_source *s,
			       const u8 gid[16], const struct host_interface *link)
{
	u32 ifindex = link != NULL ? link->ifindex : 0;

	if (*count < CONFIG_GIDS_MAX && !config_has(c, *count, gid) &&
	    (s->mine == NULL || s->mine(s->arg, gid, ifindex)))
		config_add(c, count, gid, link);
}

static const struct host_interface *config_loopback(const struct host *h)
{
	for (u32 i = 0; i < h->link_count; i++)
		if (h->links[i].loopback)
			return &h->links[i];
	return NULL;
}

/* Finds the interface that has this address, or NULL. All of 127.0.0.0/8 is the loopback's. */
static const struct host_interface *config_interface_of(const struct host *h, const u8 gid[16])
{
	const struct host_address *a = host_address_of(h, gid);

	if (a != NULL)
		return host_interface_of(h, a->ifindex);
	return node_udp_gid_is_v4(gid) && gid[12] == 127 ? config_loopback(h) : NULL;
}

void config_parse_told(const char *text, struct config_told *told)
{
	char copy[CONFIG_TOLD_TEXT], *save = NULL;

	memset(told, 0, sizeof(*told));
	if (text == NULL || text[0] == '\0')
		return;
	told->given = true;
	if (strcmp(text, "own") == 0)
		return;
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *word = strtok_r(copy, ", ", &save); word != NULL && told->count < NODE_GIDS;
	     word = strtok_r(NULL, ", ", &save)) {
		if (node_udp_gid_parse(word, told->gid[told->count]))
			told->count++;
		else
			env_refuse("ANYVERBS_ADDR", word, "addresses of hosts");
	}
}

static bool config_told_has(const struct config_told *told, u32 count, const u8 gid[16])
{
	for (u32 i = 0; i < count; i++)
		if (memcmp(told->gid[i], gid, 16) == 0)
			return true;
	return false;
}

void config_deal(const struct config_told *all, u32 count, struct config_told told[NODE_DEVICES])
{
	u32 next = 0;

	for (u32 i = 0; i < NODE_DEVICES; i++)
		told[i] = (struct config_told){ .given = all->given };
	for (u32 i = 0; i < all->count; i++) {
		struct config_told *to = &told[next % count];

		if (config_told_has(all, i, all->gid[i]))
			continue;
		memcpy(to->gid[to->count++], all->gid[i], 16);
		next++;
	}
}

static void config_add_told(struct node_config *c, int *count, const struct config_source *s)
{
	for (u32 i = 0; i < s->told->count; i++)
		config_add_address(c, count, s, s->told->gid[i],
				   config_interface_of(s->host, s->told->gid[i]));
}

/* Appends the addresses of the interfaces that are up: those with a link, or the others. */
static void config_add_family(struct node_config *c, int *count, const struct config_source *s,
			      bool v4, bool running)
{
	for (u32 i = 0; i < s->host->address_count; i++) {
		const struct host_address *a = &s->host->addresses[i];
		const struct host_interface *l = host_interface_of(s->host, a->ifindex);

		if (node_udp_gid_is_v4(a->gid) == v4 && l != NULL && !l->loopback && l->up &&
		    l->running == running)
			config_add_address(c, count, s, a->gid, l);
	}
}

/* Tells whether this device shows the host's addresses without a setting: only one node of a
 * namespace does. */
static bool config_shows_host(const struct config_source *s)
{
	return !s->told->given && s->first;
}

static void config_add_host(struct node_config *c, int *count, const struct config_source *s,
			    bool v4)
{
	if (!config_shows_host(s))
		return;
	config_add_family(c, count, s, v4, true);
	config_add_family(c, count, s, v4, false);
}

static bool config_is_link_local(const u8 gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/* Puts a link-local address of the host at index 0: of this interface, or of any with a link. */
static bool config_put_link_local_of(struct node_config *c, const struct config_source *s,
				     u32 ifindex)
{
	int index = 0;

	for (u32 i = 0; i < s->host->address_count && index == 0; i++) {
		const struct host_address *a = &s->host->addresses[i];
		const struct host_interface *l = host_interface_of(s->host, a->ifindex);

		if (config_is_link_local(a->gid) && l != NULL && !l->loopback &&
		    (ifindex != 0 ? l->ifindex == ifindex : l->running))
			config_add_address(c, &index, s, a->gid, l);
	}
	return index != 0;
}

/* Programs that use GID 0 find there what hardware adapters show: the link-local address of the
 * interface, which other hosts reach. */
static bool config_put_link_local(struct node_config *c, const struct config_source *s)
{
	u32 first = c->gids[1].ifindex;

	return config_shows_host(s) && ((first != 0 && config_put_link_local_of(c, s, first)) ||
					config_put_link_local_of(c, s, 0));
}

/* Puts the GID that every node has at index 0: made from its GUID, for processes of this host
 * only. */
static void config_put_guid(struct node_config *c)
{
	c->gids[0] = c->gids[1];
	config_guid_gid(c->node_guid, c->gids[0].gid);
}

/* The port's MTU: the largest that passes through all of its interfaces in use. */
static u32 config_port_mtu(const struct node_config *c)
{
	u32 mtu = CONFIG_MTU_MAX;

	for (int i = 1; i < NODE_GIDS; i++)
		if (c->gids[i].flags & NODE_GID_LINK)
			mtu = MIN(mtu, c->gids[i].mtu);
	return mtu;
}

void config_fill(struct node_config *c, const struct config_source *s)
{
	int count = 1; /* index 0 is set once the port's interface is known */

	memset(c, 0, sizeof(*c));
	c->id = s->id;
	c->node_guid = config_guid(s->node, s->device);
	c->link_layer = NODE_LINK_ETHERNET;
	c->ports = 1;
	snprintf(c->device, sizeof(c->device), "%s", s->device);
	snprintf(c->dev_path, sizeof(c->dev_path), "uverbs%u", s->index);
	c->port_up = 1;
	config_add_told(c, &count, s);
	config_add_host(c, &count, s, true);
	if (count == 1) {
		const struct host_interface *lo = config_loopback(s->host);
		u8 own[16];

		node_udp_gid_from_v4(own, config_own_v4(c->node_guid));
		/* index 1 is never empty, even if another node has the same address */
		if (s->mine != NULL)
			(void)s->mine(s->arg, own, lo != NULL ? lo->ifindex : 0);
		config_add(c, &count, own, lo);
	}
	if (!config_put_link_local(c, s))
		config_put_guid(c);
	config_add_host(c, &count, s, false);
	c->mtu = config_port_mtu(c);
}

/* ---- the link ---- */

/* Tells whether the interface is one of the port's: one with addresses of the node, link or no
 * link. */
static bool config_uses(const struct config_source *s, u32 ifindex)
{
	for (u32 i = 0; config_shows_host(s) && i < s->host->address_count; i++)
		if (s->host->addresses[i].ifindex == ifindex)
			return true;
	for (u32 i = 0; i < s->told->count; i++) {
		const struct host_address *a = host_address_of(s->host, s->told->gid[i]);

		if (a != NULL && a->ifindex == ifindex)
			return true;
	}
	return false;
}

static bool config_counted(const struct config_links *l, u32 ifindex)
{
	for (u32 i = 0; i < l->count; i++)
		if (l->ifindex[i] == ifindex)
			return true;
	return false;
}

bool config_link(struct config_links *links, const struct config_source *s)
{
	struct config_links now = { .count = 0 };
	bool any = false;

	for (u32 i = 0; i < s->host->link_count; i++) {
		const struct host_interface *l = &s->host->links[i];

		/* an interface that is taken down loses its IPv6 addresses */
		if (l->loopback || l->bridge ||
		    !(config_uses(s, l->ifindex) || (!l->up && config_counted(links, l->ifindex))))
			continue;
		now.ifindex[now.count++] = l->ifindex;
		any |= l->running;
	}
	*links = now;
	return any || now.count == 0;
}

/* ---- keeping indices ---- */

static const struct node_gid *config_find(const struct node_config *c, const u8 gid[16])
{
	for (int i = 0; i < NODE_GIDS; i++)
		if (memcmp(c->gids[i].gid, gid, 16) == 0)
			return &c->gids[i];
	return NULL;
}

static bool config_empty(const struct node_gid *g)
{
	static const u8 empty[16];

	return memcmp(g->gid, empty, 16) == 0;
}

static void config_put_first(struct node_config *c, const struct node_gid *g)
{
	for (int i = 1; i < CONFIG_GIDS_MAX; i++) {
		if (config_empty(&c->gids[i])) {
			c->gids[i] = *g;
			return;
		}
	}
}

bool config_merge(struct node_config *c, const struct node_config *fresh)
{
	struct node_config old = *c;

	c->mtu = fresh->mtu;
	for (int i = 0; i < NODE_GIDS; i++) {
		const struct node_gid *now = config_find(fresh, c->gids[i].gid);

		if (!config_empty(&c->gids[i]))
			c->gids[i] = now != NULL ? *now : (struct node_gid){ .ifindex = 0 };
	}
	if (config_empty(&c->gids[0]))
		c->gids[0] = fresh->gids[0];
	/* first, so that index 1 stays an IPv4 address while there is one */
	if (config_empty(&c->gids[1]) && config_find(c, fresh->gids[1].gid) == NULL)
		c->gids[1] = fresh->gids[1];
	for (int i = 0; i < NODE_GIDS; i++)
		if (!config_empty(&fresh->gids[i]) && config_find(c, fresh->gids[i].gid) == NULL)
			config_put_first(c, &fresh->gids[i]);
	if (config_empty(&c->gids[1]))
		c->gids[1] = fresh->gids[1];
	return memcmp(&old, c, sizeof(old)) != 0;
}
