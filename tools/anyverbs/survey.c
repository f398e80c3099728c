/* survey.c: asks the node for what `status`, `top` and `qp` show.
 * In:    the node's replies, the processes' boards      Out: copies
 * Runs:  the only thread, or top's reader               Locks: none
 */
#include "survey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int survey_ask_processes(int fd, struct survey *s)
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
static int survey_ask_views(int fd, struct survey *s)
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

static int survey_ask_listeners(int fd, struct survey *s)
{
	struct proto_plain request, reply;
	struct message m;
	int err = link_ask(fd, PROTO_DIRECTORY, &request, sizeof(request), &reply, sizeof(reply),
			   &m);

	if (err < 0)
		return err;
	err = m.fd_count == 1 ? listeners_read(m.fds[0], &s->listeners) : -EPROTO;
	message_close(&m);
	return err;
}

static int survey_ask_connections(int fd, struct survey *s)
{
	int err = 0;

	s->connections = calloc(s->count + 1, sizeof(*s->connections));
	if (s->connections == NULL)
		return -ENOMEM;
	for (u32 i = 0; i < s->count && err == 0; i++)
		err = connections_ask(fd, s->records[i].process, &s->connections[i]);
	return err;
}

static int survey_ask_devices(int fd, struct survey *s)
{
	struct proto_device_reply reply;
	u32 index = 0;
	int err;

	while ((err = device_read(fd, index, &reply)) == 0) {
		s->indexes[s->device_count] = reply.index;
		snprintf(s->guids[s->device_count], sizeof(s->guids[0]), "%016llx",
			 (unsigned long long)reply.config.node_guid);
		s->devices[s->device_count++] = reply.config;
		index = reply.index + 1;
	}
	return err == -ENODEV ? 0 : err;
}

void survey_free(struct survey *s)
{
	for (u32 i = 0; s->views != NULL && i < s->count; i++)
		view_free(&s->views[i]);
	for (u32 i = 0; s->connections != NULL && i < s->count; i++)
		connections_free(&s->connections[i]);
	free(s->connections);
	free(s->views);
	free(s->records);
	listeners_free(&s->listeners);
	hosts_free(&s->hosts);
}

/* Cleans the node's texts, too: it may be another build, or another program. */
static void survey_clean_node(struct proto_status_reply *n)
{
	text_clean(n->node, sizeof(n->node));
	text_clean(n->folder, sizeof(n->folder));
}

static int survey_ask(int fd, void *arg)
{
	struct proto_plain request;
	struct survey *s = arg;
	int err;

	/* what a node that has ended had told */
	survey_free(s);
	memset(s, 0, sizeof(*s));
	err = link_ask(fd, PROTO_STATUS, &request, sizeof(request), &s->node, sizeof(s->node),
		       NULL);
	if (err == 0)
		err = link_ask(fd, PROTO_ADDRESSES, &request, sizeof(request), &s->addresses,
			       sizeof(s->addresses), NULL);
	if (err == 0 && s->addresses.count > NODE_GIDS)
		err = -EPROTO;
	if (err == 0)
		err = survey_ask_processes(fd, s);
	if (err == 0)
		err = survey_ask_views(fd, s);
	if (err == 0)
		err = survey_ask_listeners(fd, s);
	if (err == 0)
		err = survey_ask_connections(fd, s);
	if (err == 0)
		err = survey_ask_devices(fd, s);
	for (u32 i = 0; i < s->count; i++) {
		text_clean(s->records[i].command, sizeof(s->records[i].command));
		text_clean(s->records[i].host, sizeof(s->records[i].host));
	}
	if (err == 0)
		err = hosts_ask(fd, s->records, s->count, &s->hosts);
	survey_clean_node(&s->node);
	return err;
}

int survey_take(struct survey *s)
{
	memset(s, 0, sizeof(*s));
	return link_do(false, survey_ask, s);
}

const struct node_config *survey_device(const struct survey *s, u32 gid_index)
{
	for (u32 i = 0; i < s->device_count; i++)
		if (s->indexes[i] == gid_index / NODE_GIDS)
			return &s->devices[i];
	return NULL;
}

const char *survey_device_of(const struct survey *s, const u8 gid[16])
{
	const struct host_port *port = hosts_with_gid(&s->hosts, gid);

	for (u32 i = 0; i < s->device_count; i++)
		for (int k = 0; k < NODE_GIDS; k++)
			if (memcmp(s->devices[i].gids[k].gid, gid, 16) == 0)
				return s->devices[i].device;
	return port != NULL ? port->device : "-";
}
