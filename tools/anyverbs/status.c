/* status.c: shows the node, its device and its processes, for people and as JSON.
 * In: the node's replies      Out: standard output
 * Runs:  the only thread         Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "connections.h"
#include "listeners.h"
#include "view.h"

/* The node's replies. */
struct status {
	struct proto_status_reply node;
	struct proto_addresses_reply addresses;
	struct node_config devices[NODE_DEVICES]; /* the first ones, without gaps */
	u32 device_count;
	struct proto_record *records;
	struct view *views; /* of the same processes */
	struct connections *connections; /* likewise */
	struct listeners listeners;
	u32 count;
};

static int status_ask_processes(int fd, struct status *s)
{
	struct proto_processes request = { .after = 0 };
	struct proto_processes_reply reply;
	struct proto_record *grown;
	int err;

	do {
		err = link_ask(fd, PROTO_PROCESSES, &request, sizeof(request), &reply,
			       sizeof(reply), NULL);
		if (err < 0)
			return err;
		if (reply.count == 0)
			return 0;
		if (reply.count > PROTO_RECORDS)
			return -EPROTO;
		grown = realloc(s->records, (s->count + reply.count) * sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		s->records = grown;
		memcpy(s->records + s->count, reply.records, reply.count * sizeof(*grown));
		s->count += reply.count;
		request.after = reply.records[reply.count - 1].process;
	} while (reply.more);
	return 0;
}

/* Reads each process' board; a process that is just ending has none. */
static int status_ask_views(int fd, struct status *s)
{
	struct proto_processes request;
	struct proto_plain reply;
	struct message m;

	s->views = calloc(s->count + 1, sizeof(*s->views));
	if (s->views == NULL)
		return -ENOMEM;
	for (u32 i = 0; i < s->count; i++) {
		request.after = s->records[i].process;
		if (link_ask(fd, PROTO_BOARD, &request, sizeof(request), &reply, sizeof(reply),
			     &m) < 0)
			continue;
		if (m.fd_count == 1)
			view_read(m.fds[0], &s->views[i]);
		message_close(&m);
	}
	return 0;
}

static int status_ask_listeners(int fd, struct status *s)
{
	struct proto_plain request, reply;
	struct message m;
	int err = link_ask(fd, PROTO_NOTICE, &request, sizeof(request), &reply, sizeof(reply), &m);

	if (err < 0)
		return err;
	err = m.fd_count == 1 ? listeners_read(m.fds[0], &s->listeners) : -EPROTO;
	message_close(&m);
	return err;
}

static int status_ask_connections(int fd, struct status *s)
{
	int err = 0;

	s->connections = calloc(s->count + 1, sizeof(*s->connections));
	if (s->connections == NULL)
		return -ENOMEM;
	for (u32 i = 0; i < s->count && err == 0; i++)
		err = connections_ask(fd, s->records[i].process, &s->connections[i]);
	return err;
}

static int status_ask_devices(int fd, struct status *s)
{
	struct proto_device_reply reply;
	u32 index = 0;
	int err;

	while ((err = device_read(fd, index, &reply)) == 0) {
		s->devices[s->device_count++] = reply.config;
		index = reply.index + 1;
	}
	return err == -ENODEV ? 0 : err;
}

static void status_free(struct status *s)
{
	for (u32 i = 0; s->views != NULL && i < s->count; i++)
		view_free(&s->views[i]);
	for (u32 i = 0; s->connections != NULL && i < s->count; i++)
		connections_free(&s->connections[i]);
	free(s->connections);
	free(s->views);
	free(s->records);
	listeners_free(&s->listeners);
}

/* Cleans the node's texts, too: it may be another build, or another program. */
static void status_clean_node(struct proto_status_reply *n)
{
	text_clean(n->node, sizeof(n->node));
	text_clean(n->folder, sizeof(n->folder));
}

static int status_ask(struct status *s)
{
	struct proto_plain request;
	int err, fd = link_open(false);

	if (fd < 0)
		return fd;
	err = link_ask(fd, PROTO_STATUS, &request, sizeof(request), &s->node, sizeof(s->node),
		       NULL);
	if (err == 0)
		err = link_ask(fd, PROTO_ADDRESSES, &request, sizeof(request), &s->addresses,
			       sizeof(s->addresses), NULL);
	if (err == 0 && s->addresses.count > NODE_GIDS)
		err = -EPROTO;
	if (err == 0)
		err = status_ask_processes(fd, s);
	if (err == 0)
		err = status_ask_views(fd, s);
	if (err == 0)
		err = status_ask_listeners(fd, s);
	if (err == 0)
		err = status_ask_connections(fd, s);
	if (err == 0)
		err = status_ask_devices(fd, s);
	close(fd);
	status_clean_node(&s->node);
	for (u32 i = 0; i < s->count; i++)
		text_clean(s->records[i].command, sizeof(s->records[i].command));
	return err;
}

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
static bool status_is_later(const struct status *s)
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

static void status_print_node(const struct status *s)
{
	printf("node %s: pid %d, up %.1f s, folder %s\n", s->node.node, s->node.pid,
	       (double)s->node.uptime_ms / 1e3,
	       s->node.folder[0] != '\0' ? s->node.folder : "(none)");
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
	printf("processes: %u, slots taken: %u, pairs: %u, multicast memberships: %u\n",
	       s->node.attached, s->node.slots_taken, s->node.pairs, s->node.members);
}

static int status_print(const struct status *s)
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
		putchar('\n');
		listeners_print(&s->listeners, r->process);
		connections_print(&s->connections[i], s->devices, s->device_count);
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

static void status_json_devices(const struct status *s)
{
	fputs("  \"devices\": [", stdout);
	for (u32 i = 0; i < s->device_count; i++) {
		fputs(i > 0 ? ",\n    " : "", stdout);
		status_json_device(&s->devices[i]);
	}
	fputs("],\n", stdout);
}

static void status_json_process(const struct status *s, u32 index)
{
	const struct proto_record *r = &s->records[index];

	printf("%s\n    {\"process\": %llu, \"pid\": %d, \"command\": ", index > 0 ? "," : "",
	       (unsigned long long)r->process, r->pid);
	json_string(stdout, r->command);
	printf(", \"age_s\": %.3f, \"pairs\": %u, \"multicast\": %u, "
	       "\"slot_count\": %u, \"slots\": [",
	       (double)r->age_ms / 1e3, r->pair_count, r->member_count, r->slot_count);
	for (u32 i = 0; i < MIN(r->slot_count, (u32)PROTO_RECORD_SLOTS); i++)
		printf("%s%u", i > 0 ? ", " : "", r->slots[i]);
	putchar(']');
	listeners_print_json(&s->listeners, r->process);
	connections_print_json(&s->connections[index], s->devices, s->device_count);
	view_print_json(&s->views[index]);
	putchar('}');
}

static int status_json(const struct status *s)
{
	fputs("{\"running\": true,\n  \"node\": ", stdout);
	json_string(stdout, s->node.node);
	printf(", \"pid\": %d, \"uptime_s\": %.3f, \"folder\": ", s->node.pid,
	       (double)s->node.uptime_ms / 1e3);
	json_string(stdout, s->node.folder);
	printf(",\n  \"slots_taken\": %u, \"pairs\": %u, \"multicast\": %u,\n", s->node.slots_taken,
	       s->node.pairs, s->node.members);
	status_json_devices(s);
	status_json_addresses(&s->addresses);
	fputs("  \"processes\": [", stdout);
	for (u32 i = 0; i < s->count; i++)
		status_json_process(s, i);
	fputs("]}\n", stdout);
	return EXIT_OK;
}

int command_status(int argc, char **argv)
{
	struct status s;
	bool json = false;
	int err, code;

	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--json") != 0)
			return command_fail(EXIT_USAGE, "status: unknown argument %s", argv[i]);
		json = true;
	}
	memset(&s, 0, sizeof(s));
	err = status_ask(&s);
	if (err == -ECONNREFUSED) {
		puts(json ? "{\"running\": false}"
			  : "no node is up (the first verbs program starts one)");
		return EXIT_FAILED;
	}
	if (err < 0)
		code = command_fail(EXIT_FAILED, "status: %s", strerror(-err));
	else
		code = json ? status_json(&s) : status_print(&s);
	status_free(&s);
	return code;
}
