/* connections.c: asks the node for the connections of a process, and prints them.
 * In:    CONNECTIONS replies         Out: standard output
 * Runs:  the only thread             Locks: none
 * Spec:  IBA vol 1, 12.9.5 (states), annex A11 (service IDs of the RDMA CM)
 */
#include "survey.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "listeners.h"

enum { CONNECTIONS_TEXT = 16, CONNECTIONS_PEER = INET6_ADDRSTRLEN + 16 };

/* ---- asking ---------------------------------------------------------------------------------- */

static int connections_append(struct connections *c, const struct proto_connections_reply *reply)
{
	struct proto_connection *grown;

	if (reply->count > PROTO_CONNECTION_RECORDS || reply->next > NODE_WILLS)
		return -EPROTO;
	if (reply->count == 0)
		return 0;
	grown = realloc(c->all, (c->count + reply->count) * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	c->all = grown;
	memcpy(c->all + c->count, reply->records, reply->count * sizeof(*grown));
	c->count += reply->count;
	return 0;
}

int connections_ask(int fd, u64 process, struct connections *out)
{
	struct proto_connections request = { .process = process };
	struct proto_connections_reply reply;
	int err;

	memset(out, 0, sizeof(*out));
	do {
		err = link_ask(fd, PROTO_CONNECTIONS, &request, sizeof(request), &reply,
			       sizeof(reply), NULL);
		if (err == 0)
			err = connections_append(out, &reply);
		if (err != 0)
			return err == -ENOENT ? 0 : err;
		if (reply.next != 0 && reply.next <= request.from)
			return -EPROTO;
		request.from = reply.next;
	} while (request.from != 0);
	return 0;
}

void connections_free(struct connections *c)
{
	free(c->all);
	c->all = NULL;
	c->count = 0;
}

/* ---- printing -------------------------------------------------------------------------------- */

static const char *connections_state(const struct node_connection *c)
{
	static const char *const names[] = {
		[NODE_CONNECTION_IDLE] = "IDLE",
		[NODE_CONNECTION_LISTEN] = "LISTEN",
		[NODE_CONNECTION_REQ_SENT] = "REQ_SENT",
		[NODE_CONNECTION_REQ_RCVD] = "REQ_RCVD",
		[NODE_CONNECTION_MRA_REQ_SENT] = "MRA_REQ_SENT",
		[NODE_CONNECTION_MRA_REQ_RCVD] = "MRA_REQ_RCVD",
		[NODE_CONNECTION_REP_SENT] = "REP_SENT",
		[NODE_CONNECTION_REP_RCVD] = "REP_RCVD",
		[NODE_CONNECTION_MRA_REP_SENT] = "MRA_REP_SENT",
		[NODE_CONNECTION_MRA_REP_RCVD] = "MRA_REP_RCVD",
		[NODE_CONNECTION_ESTABLISHED] = "ESTABLISHED",
		[NODE_CONNECTION_DREQ_SENT] = "DREQ_SENT",
		[NODE_CONNECTION_DREQ_RCVD] = "DREQ_RCVD",
		[NODE_CONNECTION_TIMEWAIT] = "TIMEWAIT",
		[NODE_CONNECTION_SIDR_REQ_SENT] = "SIDR_REQ_SENT",
		[NODE_CONNECTION_SIDR_REQ_RCVD] = "SIDR_REQ_RCVD",
	};

	return c->state < ARRAY_LEN(names) ? names[c->state] : "?";
}

/* An IPv4 address in its own notation. */
static const char *connections_address(const u8 gid[16], char text[INET6_ADDRSTRLEN])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	bool v4 = memcmp(gid, mapped, sizeof(mapped)) == 0;

	return inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid + 12 : gid, text, INET6_ADDRSTRLEN);
}

/* An end, with the port if it is the one that listens. */
static const char *connections_end(const u8 gid[16], bool listens, u64 service_id,
				   char out[CONNECTIONS_PEER])
{
	char text[INET6_ADDRSTRLEN];
	const char *address = connections_address(gid, text);
	bool port = listens && service_space(service_id) != NULL;

	if (!port)
		snprintf(out, CONNECTIONS_PEER, "%s", address);
	else
		snprintf(out, CONNECTIONS_PEER, strchr(address, ':') != NULL ? "[%s]:%u" : "%s:%u",
			 address, (u32)(service_id & 0xffff));
	return out;
}

static void connections_print_one(const struct proto_connection *p,
				  const struct survey *s)
{
	const struct node_connection *c = &p->connection;
	const char *space = service_space(c->service_id);
	char local[CONNECTIONS_PEER], remote[CONNECTIONS_PEER];

	printf("%*sconnection ", 14, "");
	if (space != NULL)
		printf("%s ", space);
	else
		printf("service %016llx ", (unsigned long long)c->service_id);
	printf("%s %s %s  %s  %s  QP 0x%06x - 0x%06x  id %08x - %08x\n",
	       connections_end(p->sgid, c->passive, c->service_id, local),
	       c->passive ? "<-" : "->",
	       connections_end(p->dgid, !c->passive, c->service_id, remote), connections_state(c),
	       survey_device_of(s, p->sgid), c->local_qpn, c->remote_qpn,
	       c->local_id, c->remote_id);
}

void connections_print(const struct connections *c, const struct survey *s)
{
	u32 shown = MIN(c->count, (u32)CONNECTIONS_TEXT);

	for (u32 i = 0; i < shown; i++)
		connections_print_one(&c->all[i], s);
	if (shown < c->count)
		printf("%*sand %u connections more (--json shows them)\n", 14, "",
		       c->count - shown);
}

void connections_print_json(const struct connections *c, const struct survey *s)
{
	char text[INET6_ADDRSTRLEN];

	fputs(",\n      \"connections\": [", stdout);
	for (u32 i = 0; i < c->count; i++) {
		const struct node_connection *one = &c->all[i].connection;
		const char *space = service_space(one->service_id);

		printf("%s\n        {\"local_id\": \"%08x\", \"remote_id\": \"%08x\", "
		       "\"state\": \"%s\", \"passive\": %s, \"service_id\": \"%016llx\"",
		       i > 0 ? "," : "", one->local_id, one->remote_id, connections_state(one),
		       one->passive ? "true" : "false", (unsigned long long)one->service_id);
		if (space != NULL)
			printf(", \"space\": \"%s\", \"port\": %u", space,
			       (u32)(one->service_id & 0xffff));
		printf(", \"local_address\": \"%s\"", connections_address(c->all[i].sgid, text));
		printf(", \"remote_address\": \"%s\"", connections_address(c->all[i].dgid, text));
		printf(", \"local_qpn\": %u, \"remote_qpn\": %u, \"device\": ", one->local_qpn,
		       one->remote_qpn);
		json_string(stdout, survey_device_of(s, c->all[i].sgid));
		putchar('}');
	}
	putchar(']');
}
