/* hosts.c: the ports of a fabric's hosts that processes are on.
 * In:    the fabric's map and counters, names of hosts      Out: copies; text
 * Runs:  the only thread, or top's reader                   Locks: none
 */
#include "hosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric.h"

/* Is it the first process on its host? */
static bool hosts_is_first(const struct proto_record *records, u32 index)
{
	for (u32 i = 0; i < index; i++)
		if (strcmp(records[i].host, records[index].host) == 0)
			return false;
	return records[index].host[0] != '\0';
}

static struct host_port *hosts_add(struct hosts *h)
{
	struct host_port *grown = h->ports;

	/* doubles whenever the count is a power of two */
	if ((h->count & (h->count - 1)) == 0)
		grown = realloc(h->ports,
				sizeof(*grown) * (h->count == 0 ? 1 : 2 * (size_t)h->count));
	if (grown == NULL)
		return NULL;
	h->ports = grown;
	return memset(&h->ports[h->count++], 0, sizeof(*grown));
}

static int hosts_add_port(struct hosts *h, const struct plan *p, const char *host, u32 ca,
			  const struct fabric_node_attr *n, u32 number)
{
	struct fabric_port_attr a;
	struct host_port *out;

	if (!plan_port(p, n->first_port + number, &a))
		return 0;
	out = hosts_add(h);
	if (out == NULL)
		return -ENOMEM;
	snprintf(out->host, sizeof(out->host), "%s", host);
	snprintf(out->device, sizeof(out->device), "ib%u", ca);
	snprintf(out->name, sizeof(out->name), n->ports > 1 ? "%s %s:%u" : "%s %s", out->host,
		 out->device, number);
	snprintf(out->guid, sizeof(out->guid), "%016llx", (unsigned long long)a.guid);
	out->prefix = a.gid_prefix;
	out->port_guid = a.guid;
	out->number = number;
	out->lid = a.lid;
	out->ip = fabric_ip_of(&p->view, n->first_port + number);
	out->mtu = a.mtu >= 1 && a.mtu <= 5 ? 128u << a.mtu : 0;
	out->state = plan_state(&a);
	(void)fabric_counts_read(&p->counters, n->first_port + number, &out->counts);
	return 0;
}

static int hosts_add_host(struct hosts *h, const struct plan *p, const char *host)
{
	u32 cas[NODE_HOST_CAS], count = fabric_find_host(&p->view, host, cas, NODE_HOST_CAS);
	struct fabric_node_attr n;
	int err = 0;

	h->used++;
	for (u32 i = 0; i < MIN(count, (u32)NODE_HOST_CAS); i++) {
		if (fabric_node_read(&p->view, cas[i], &n) < 0)
			continue;
		for (u32 k = 1; err == 0 && k <= n.ports; k++)
			err = hosts_add_port(h, p, host, i, &n, k);
	}
	return err;
}

int hosts_ask(int fd, const struct proto_record *records, u32 count, struct hosts *out)
{
	struct plan p;
	int err;

	memset(out, 0, sizeof(*out));
	err = plan_open(&p, fd);
	if (err == -ENODEV)
		return 0;
	if (err < 0)
		return err;
	out->fabric = true;
	for (u32 i = 0; err == 0 && i < count && out->used < HOSTS_MAX; i++)
		if (hosts_is_first(records, i))
			err = hosts_add_host(out, &p, records[i].host);
	plan_close(&p);
	return err;
}

void hosts_free(struct hosts *h)
{
	free(h->ports);
	h->ports = NULL;
	h->count = 0;
}

const struct host_port *hosts_find(const struct hosts *h, const char *name)
{
	for (u32 i = 0; i < h->count; i++)
		if (strcmp(h->ports[i].name, name) == 0)
			return &h->ports[i];
	return NULL;
}

const struct host_port *hosts_only_port(const struct hosts *h, const char *host)
{
	const struct host_port *found = NULL;

	for (u32 i = 0; i < h->count; i++) {
		if (strcmp(h->ports[i].host, host) != 0)
			continue;
		if (found != NULL)
			return NULL;
		found = &h->ports[i];
	}
	return found;
}

/* Eight bytes of a GID as a number. */
static u64 hosts_half(const u8 *bytes)
{
	u64 value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | bytes[i];
	return value;
}

const struct host_port *hosts_with_gid(const struct hosts *h, const u8 gid[16])
{
	for (u32 i = 0; i < h->count; i++)
		if (hosts_half(gid) == h->ports[i].prefix &&
		    hosts_half(gid + 8) == h->ports[i].port_guid)
			return &h->ports[i];
	return NULL;
}

bool hosts_port_active(const struct host_port *p)
{
	return strcmp(p->state, "ACTIVE") == 0;
}

/* ---- for status ------------------------------------------------------------------------------ */

void hosts_print(const struct hosts *h)
{
	for (u32 i = 0; i < h->count; i++) {
		const struct host_port *p = &h->ports[i];

		printf("host %s: %s, port %u %s, GUID %s", p->host, p->device, p->number, p->state,
		       p->guid);
		if (p->lid != 0)
			printf(", LID %u", p->lid);
		if (p->ip != 0)
			printf(", %u.%u.%u.%u", p->ip >> 24, p->ip >> 16 & 255, p->ip >> 8 & 255,
			       p->ip & 255);
		putchar('\n');
	}
}

void hosts_print_json(const struct hosts *h)
{
	fputs("  \"hosts\": [", stdout);
	for (u32 i = 0; i < h->count; i++) {
		const struct host_port *p = &h->ports[i];

		printf("%s\n    {\"host\": ", i > 0 ? "," : "");
		json_string(stdout, p->host);
		printf(", \"device\": \"%s\", \"port\": %u, \"state\": \"%s\", \"guid\": \"%s\", "
		       "\"lid\": %u, \"mtu\": %u, \"xmit_bytes\": %llu, \"rcv_bytes\": %llu}",
		       p->device, p->number, p->state, p->guid, p->lid, p->mtu,
		       (unsigned long long)p->counts.xmit_bytes,
		       (unsigned long long)p->counts.rcv_bytes);
	}
	fputs("],\n", stdout);
}
