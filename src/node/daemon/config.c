/* config.c: GUID and GIDs.
 * In:    machine-id or host name, user, node, network namespace; the interfaces; ANYVERBS_ADDR
 * Out:   struct node_config
 * Runs:  the daemon's only thread
 * Locks: none
 * Spec:  IBA vol 1, 4.1.1 (GID); annex A17.4.1 (RoCEv2 addresses)
 */
#include "node/daemon/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "node/address.h"

enum { CONFIG_GIDS_MAX = NODE_GIDS - 1 /* one stays empty, at least */ };

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

u64 config_guid(const char *node)
{
	char machine[64];
	u64 h = config_hash(0xcbf29ce484222325ull, machine,
			    config_machine(machine, sizeof(machine)));
	u64 ns = address_net_ns();
	u32 uid = geteuid();

	h = config_hash(h, &uid, sizeof(uid));
	h = config_hash(h, node, strlen(node));
	h = config_hash(h, &ns, sizeof(ns));
	h = config_mix(h);
	/* the first byte says: locally administered, not a group */
	h &= ~(1ull << 56);
	return h | 1ull << 57;
}

static void config_gid_v4(u8 gid[16], u32 address_be)
{
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &address_be, 4);
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

/* Puts a GID at the end unless it is there, or the table is full. */
static void config_add(struct node_config *c, int *count, const u8 gid[16], const char *ifname)
{
	struct node_gid *g = &c->gids[*count];

	if (*count >= CONFIG_GIDS_MAX || config_has(c, *count, gid))
		return;
	memcpy(g->gid, gid, 16);
	g->mtu = 4096;
	g->flags = NODE_GID_LINK;
	if (ifname != NULL) {
		snprintf(g->ifname, sizeof(g->ifname), "%s", ifname);
		g->ifindex = if_nametoindex(ifname);
	}
	(*count)++;
}

/* The address as a GID; false if it is of another kind. */
static bool config_gid_of(const struct sockaddr *a, u8 gid[16])
{
	if (a != NULL && a->sa_family == AF_INET) {
		config_gid_v4(gid, ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr);
		return true;
	}
	if (a != NULL && a->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
		return true;
	}
	return false;
}

/* The interface that has this address, or NULL. */
static const char *config_interface_of(struct ifaddrs *list, const u8 gid[16])
{
	u8 other[16];

	for (struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
		if (config_gid_of(i->ifa_addr, other) && memcmp(gid, other, 16) == 0)
			return i->ifa_name;
	return NULL;
}

/* ANYVERBS_ADDR: one address or several with commas between. Returns whether it named any. */
static bool config_add_told(struct node_config *c, int *count, struct ifaddrs *list)
{
	const char *told = getenv("ANYVERBS_ADDR");
	char copy[1024], *save = NULL;
	int before = *count;

	if (told == NULL || told[0] == '\0')
		return false;
	snprintf(copy, sizeof(copy), "%s", told);
	for (char *word = strtok_r(copy, ", ", &save); word != NULL;
	     word = strtok_r(NULL, ", ", &save)) {
		struct in_addr v4;
		struct in6_addr v6;
		u8 gid[16];

		if (inet_pton(AF_INET, word, &v4) == 1) {
			config_gid_v4(gid, v4.s_addr);
		} else if (inet_pton(AF_INET6, word, &v6) == 1) {
			memcpy(gid, &v6, 16);
		} else {
			log_error("node", "ANYVERBS_ADDR: %s is no address", word);
			continue;
		}
		config_add(c, count, gid, config_interface_of(list, gid));
	}
	return *count > before;
}

static bool config_usable(const struct ifaddrs *i)
{
	return i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK);
}

/* The addresses of one family of all interfaces that are up. */
static void config_add_family(struct node_config *c, int *count, struct ifaddrs *list, int family)
{
	u8 gid[16];

	for (struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
		if (config_usable(i) && i->ifa_addr->sa_family == family &&
		    config_gid_of(i->ifa_addr, gid))
			config_add(c, count, gid, i->ifa_name);
}

/* The interface that stands for the port: the first usable one, else the loopback. */
static const char *config_main_interface(struct ifaddrs *list)
{
	for (struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
		if (config_usable(i) && i->ifa_addr->sa_family == AF_INET)
			return i->ifa_name;
	return "lo";
}

void config_fill(struct node_config *c, const char *node)
{
	static const u8 link_local[8] = { 0xfe, 0x80 };
	struct ifaddrs *list = NULL;
	u8 gid[16];
	int count = 0;

	memset(c, 0, sizeof(*c));
	c->node_guid = config_guid(node);
	snprintf(c->device, sizeof(c->device), "roce0");
	snprintf(c->dev_path, sizeof(c->dev_path), "uverbs0");
	c->mtu = 4096;
	c->port_up = 1;
	if (getifaddrs(&list) < 0)
		list = NULL;
	memcpy(gid, link_local, 8);
	for (int i = 0; i < 8; i++)
		gid[8 + i] = (u8)(c->node_guid >> (56 - 8 * i));
	config_add(c, &count, gid, config_main_interface(list));
	if (!config_add_told(c, &count, list) && strcmp(node, "default") == 0)
		config_add_family(c, &count, list, AF_INET);
	if (count == 1) {
		config_gid_v4(gid, config_own_v4(c->node_guid));
		config_add(c, &count, gid, "lo");
	}
	if (strcmp(node, "default") == 0 && getenv("ANYVERBS_ADDR") == NULL)
		config_add_family(c, &count, list, AF_INET6);
	if (list != NULL)
		freeifaddrs(list);
}

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

	for (int i = 0; i < NODE_GIDS; i++) {
		const struct node_gid *now = config_find(fresh, c->gids[i].gid);

		if (!config_empty(&c->gids[i]))
			c->gids[i] = now != NULL ? *now : (struct node_gid){ .ifindex = 0 };
	}
	/* first, so that it is an IPv4 address as long as there is any */
	if (config_empty(&c->gids[1]) && config_find(c, fresh->gids[1].gid) == NULL)
		c->gids[1] = fresh->gids[1];
	for (int i = 0; i < NODE_GIDS; i++)
		if (!config_empty(&fresh->gids[i]) && config_find(c, fresh->gids[i].gid) == NULL)
			config_put_first(c, &fresh->gids[i]);
	if (config_empty(&c->gids[1]))
		c->gids[1] = fresh->gids[1];
	return memcmp(&old, c, sizeof(old)) != 0;
}
