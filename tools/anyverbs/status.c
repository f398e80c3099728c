/* status.c: shows the node, its device and its processes, for people and as JSON.
 * In:    a survey                Out: standard output
 * Runs:  the only thread         Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "node/place.h"
#include "prometheus.h"
#include "survey.h"

static bool status_gid_empty(const struct node_gid *g)
{
	static const u8 empty[16];

	return memcmp(g->gid, empty, 16) == 0;
}

static const char *status_gid_text(const struct node_gid *g, char text[INET6_ADDRSTRLEN])
{
	return inet_ntop(AF_INET6, g->gid, text, INET6_ADDRSTRLEN);
}

/* Writes the address of a group; IPv4 in its own notation. */
static const char *status_address_text(const struct proto_address *a, char text[INET6_ADDRSTRLEN])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (memcmp(a->gid, mapped, sizeof(mapped)) == 0)
		return inet_ntop(AF_INET, a->gid + 12, text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, a->gid, text, INET6_ADDRSTRLEN);
}

/* The state of an address: a word for programs, and a sentence. */
static const struct {
	const char *word, *text;
} status_udp[] = {
	[PROTO_UDP_NONE] = { "none", "not opened" },
	[PROTO_UDP_OPEN] = { "open", "open" },
	[PROTO_UDP_OTHER] = { "other_node", "another node has this address: it is not ours" },
	[PROTO_UDP_TAKEN] = { "port_taken", "taken by another program: local use only" },
	[PROTO_UDP_ABSENT] = { "absent", "the host does not have this address: local use only" },
	[PROTO_UDP_FAILED] = { "failed", "failed" },
};

static u32 status_udp_index(const struct proto_address *a)
{
	return a->state < ARRAY_LEN(status_udp) ? a->state : PROTO_UDP_FAILED;
}

static void status_print_address(const struct proto_address *a)
{
	char text[INET6_ADDRSTRLEN], name[IF_NAMESIZE] = "";

	if (a->ifindex != 0 && if_indextoname(a->ifindex, name) == NULL)
		name[0] = '\0';
	printf("  UDP    %-39s %s%sport %d: %s", status_address_text(a, text), name,
	       name[0] != '\0' ? ", " : "", NODE_UDP_PORT, status_udp[status_udp_index(a)].text);
	if (a->state == PROTO_UDP_FAILED)
		printf(": %s", strerror(a->err == INT32_MIN ? EPROTO : -a->err));
	if (a->state == PROTO_UDP_OPEN)
		printf(", %u sockets, %u in use", a->sockets, a->slots);
	if (a->dropped > 0)
		printf(", %llu datagrams for nobody", (unsigned long long)a->dropped);
	if (a->lost > 0)
		printf(", %u found no room", a->lost);
	putchar('\n');
}

static void status_json_addresses(const struct proto_addresses_reply *r)
{
	char text[INET6_ADDRSTRLEN], name[IF_NAMESIZE];

	fputs("  \"addresses\": [", stdout);
	for (u32 i = 0; i < r->count; i++) {
		const struct proto_address *a = &r->addresses[i];

		if (a->ifindex == 0 || if_indextoname(a->ifindex, name) == NULL)
			name[0] = '\0';
		printf("%s\n    {\"address\": \"%s\", \"interface\": ", i > 0 ? "," : "",
		       status_address_text(a, text));
		json_string(stdout, name);
		printf(", \"udp\": \"%s\", \"error\": %d, \"sockets\": %u, \"slots\": %u, "
		       "\"dropped\": %llu, \"lost\": %u}",
		       status_udp[status_udp_index(a)].word, a->err, a->sockets, a->slots,
		       (unsigned long long)a->dropped, a->lost);
	}
	fputs("],\n", stdout);
}

static void status_print_gid(int i, const struct node_gid *g)
{
	char text[INET6_ADDRSTRLEN];

	printf("  GID %-2d %-39s", i, status_gid_text(g, text));
	if (g->ifname[0] != '\0')
		printf(" %s, %s, MTU %u", g->ifname,
		       g->flags & NODE_GID_LINK ? "link" : "no link", g->mtu);
	puts(g->flags & NODE_GID_WIRE ? "" : " (this host only)");
}

/* Tells whether a device has loopback addresses only, which other hosts do not reach. */
static bool status_is_loopback(const struct node_config *c)
{
	static const u8 loopback[13] = { [10] = 0xff, [11] = 0xff, [12] = 127 };

	for (int i = 1; i < NODE_GIDS; i++)
		if (!status_gid_empty(&c->gids[i]) &&
		    memcmp(c->gids[i].gid, loopback, sizeof(loopback)) != 0)
			return false;
	return true;
}

/* Tells whether another node of the namespace came first and shows all addresses of the host. */
static bool status_is_later(const struct survey *s)
{
	bool other = false;

	for (u32 i = 0; i < s->addresses.count; i++)
		other |= s->addresses.addresses[i].state == PROTO_UDP_OTHER;
	return other && s->device_count > 0 && status_is_loopback(&s->devices[0]);
}

static void status_print_slots(const struct proto_record *r)
{
	u32 shown = MIN(r->slot_count, (u32)PROTO_RECORD_SLOTS);

	for (u32 i = 0; i < shown; i++)
		printf("%s%u", i > 0 ? "," : "", r->slots[i]);
	if (shown == 0)
		putchar('-');
	if (shown < r->slot_count)
		fputs(",...", stdout);
}

static void status_print_device(const struct node_config *c)
{
	printf("device %s: GUID %016llx, port 1 %s, MTU %u\n", c->device,
	       (unsigned long long)c->node_guid, c->port_up ? "ACTIVE" : "DOWN", c->mtu);
	for (int i = 0; i < NODE_GIDS; i++)
		if (!status_gid_empty(&c->gids[i]))
			status_print_gid(i, &c->gids[i]);
}

/* Why the node has no folder: what stands in the way at each place, to this process. */
static void status_print_places(const char *name)
{
	for (int i = 0; i < PLACE_COUNT; i++) {
		char path[PLACE_PATH];
		int fd = place_open(i, place_scope_wanted(), name, false, path);

		if (fd >= 0)
			close(fd);
		else if (fd != -ENODEV && fd != -ENOENT)
			printf("  cannot use %s: %s\n", path,
			       fd == -EACCES ? "another user's, or others may look into it"
					     : strerror(-fd));
	}
	puts("  so programs see no sysfs tree, and slots do not survive the node");
}

static void status_print_node(const struct survey *s)
{
	printf("node %s: pid %d, up %.1f s, folder %s\n", s->node.node, s->node.pid,
	       (double)s->node.uptime_ms / 1e3,
	       s->node.folder[0] != '\0' ? s->node.folder : "(none)");
	if (s->node.folder[0] == '\0')
		status_print_places(s->node.node);
	for (u32 i = 0; i < s->device_count; i++)
		status_print_device(&s->devices[i]);
	for (u32 i = 0; i < s->addresses.count; i++)
		status_print_address(&s->addresses.addresses[i]);
	if (status_is_later(s))
		puts("another node of this network namespace came first and has the host's "
		     "addresses: other hosts are out of reach (see ANYVERBS_ADDR in "
		     "anyverbsd(8))");
	for (u32 i = 1; i < s->device_count; i++)
		if (status_is_loopback(&s->devices[i]))
			printf("device %s has a loopback address: it does not reach other hosts "
			       "(see ANYVERBS_ADDR in anyverbsd(8))\n",
			       s->devices[i].device);
	hosts_print(&s->hosts);
	printf("processes: %u, slots taken: %u, pairs: %u, multicast memberships: %u\n",
	       s->node.attached, s->node.slots_taken, s->node.pairs, s->node.members);
}

static int status_print(const struct survey *s)
{
	status_print_node(s);
	if (s->count > 0)
		printf("%10s  %-20s %8s %6s %6s  %s\n", "PID", "COMMAND", "AGE", "PAIRS", "MCAST",
		       "SLOTS");
	for (u32 i = 0; i < s->count; i++) {
		const struct proto_record *r = &s->records[i];

		printf("%10d  %-20s %7.1fs %6u %6u  ", r->pid, r->command, (double)r->age_ms / 1e3,
		       r->pair_count, r->member_count);
		status_print_slots(r);
		if (r->host[0] != '\0')
			printf("  on %s", r->host);
		putchar('\n');
		listeners_print(&s->listeners, r->process);
		connections_print(&s->connections[i], s);
		view_print(&s->views[i]);
	}
	return EXIT_OK;
}

static void status_json_device(const struct node_config *c)
{
	char text[INET6_ADDRSTRLEN];
	const char *comma = "";

	fputs("{\"name\": ", stdout);
	json_string(stdout, c->device);
	printf(", \"node_guid\": \"%016llx\", \"sysfs\": ", (unsigned long long)c->node_guid);
	json_string(stdout, c->sysfs);
	printf(",\n    \"ports\": [{\"port\": 1, \"state\": \"%s\", \"link_downed\": %u, "
	       "\"mtu\": %u, \"gids\": [",
	       c->port_up ? "ACTIVE" : "DOWN", c->port_downs, c->mtu);
	for (int i = 0; i < NODE_GIDS; i++) {
		if (status_gid_empty(&c->gids[i]))
			continue;
		printf("%s\n      {\"index\": %d, \"gid\": \"%s\", \"type\": \"RoCE v2\", "
		       "\"interface\": ",
		       comma, i, status_gid_text(&c->gids[i], text));
		json_string(stdout, c->gids[i].ifname);
		printf(", \"mtu\": %u, \"link\": %s, \"wire\": %s}", c->gids[i].mtu,
		       c->gids[i].flags & NODE_GID_LINK ? "true" : "false",
		       c->gids[i].flags & NODE_GID_WIRE ? "true" : "false");
		comma = ",";
	}
	fputs("]}]}", stdout);
}

static void status_json_devices(const struct survey *s)
{
	fputs("  \"devices\": [", stdout);
	for (u32 i = 0; i < s->device_count; i++) {
		fputs(i > 0 ? ",\n    " : "", stdout);
		status_json_device(&s->devices[i]);
	}
	fputs("],\n", stdout);
}

static void status_json_process(const struct survey *s, u32 index)
{
	const struct proto_record *r = &s->records[index];

	printf("%s\n    {\"process\": %llu, \"pid\": %d, \"command\": ", index > 0 ? "," : "",
	       (unsigned long long)r->process, r->pid);
	json_string(stdout, r->command);
	fputs(", \"host\": ", stdout);
	json_string(stdout, r->host);
	printf(", \"age_s\": %.3f, \"pairs\": %u, \"multicast\": %u, "
	       "\"slot_count\": %u, \"slots\": [",
	       (double)r->age_ms / 1e3, r->pair_count, r->member_count, r->slot_count);
	for (u32 i = 0; i < MIN(r->slot_count, (u32)PROTO_RECORD_SLOTS); i++)
		printf("%s%u", i > 0 ? ", " : "", r->slots[i]);
	putchar(']');
	listeners_print_json(&s->listeners, r->process);
	connections_print_json(&s->connections[index], s);
	view_print_json(&s->views[index]);
	putchar('}');
}

static int status_json(const struct survey *s)
{
	fputs("{\"running\": true,\n  \"node\": ", stdout);
	json_string(stdout, s->node.node);
	printf(", \"pid\": %d, \"uptime_s\": %.3f, \"folder\": ", s->node.pid,
	       (double)s->node.uptime_ms / 1e3);
	json_string(stdout, s->node.folder);
	printf(",\n  \"slots_taken\": %u, \"pairs\": %u, \"multicast\": %u,\n", s->node.slots_taken,
	       s->node.pairs, s->node.members);
	status_json_devices(s);
	hosts_print_json(&s->hosts);
	status_json_addresses(&s->addresses);
	fputs("  \"processes\": [", stdout);
	for (u32 i = 0; i < s->count; i++)
		status_json_process(s, i);
	fputs("]}\n", stdout);
	return EXIT_OK;
}

enum status_format { STATUS_TEXT, STATUS_JSON, STATUS_PROMETHEUS };

static int status_absent(enum status_format format)
{
	if (format == STATUS_PROMETHEUS)
		prometheus_print(NULL);
	else if (format == STATUS_JSON)
		puts("{\"running\": false}");
	else
		absent_say();
	return EXIT_FAILED;
}

static int status_show(const struct survey *s, enum status_format format)
{
	if (format == STATUS_JSON)
		return status_json(s);
	if (format == STATUS_TEXT)
		return status_print(s);
	prometheus_print(s);
	return EXIT_OK;
}

int command_status(int argc, char **argv)
{
	enum status_format format = STATUS_TEXT;
	struct survey s;
	int err, code;

	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			format = STATUS_JSON;
		else if (strcmp(argv[i], "--prometheus") == 0)
			format = STATUS_PROMETHEUS;
		else
			return command_fail(EXIT_USAGE, "status: unknown argument %s", argv[i]);
	}
	err = survey_take(&s);
	if (err == -ECONNREFUSED)
		return status_absent(format);
	if (err < 0)
		code = command_fail(EXIT_FAILED, "status: %s", absent_strerror(err));
	else
		code = status_show(&s, format);
	survey_free(&s);
	return code;
}
