/* link.c: the command's connection to the node.
 * In:    requests             Out: replies
 * Runs:  the only thread      Locks: none
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "node/await.h"
#include "node/client_priv.h"

enum { LINK_TRIES = 3 /* of nodes that end meanwhile */ };

/* link_ask with a descriptor to send, -1: none. */
static int link_exchange(int fd, u16 type, void *request, size_t size, int given,
			 void *reply, size_t reply_size, struct message *m)
{
	struct proto_head *q = request, *a = reply;
	struct await wait = { .looks = 0 };
	struct message mine;
	int err;

	*q = (struct proto_head){ .magic = PROTO_MAGIC,
				  .version = PROTO_VERSION,
				  .type = type };
	err = message_send(fd, request, size, &given, given >= 0);
	if (err == 0)
		err = await_reply(fd, &wait);
	if (err == 0)
		err = message_receive(fd, reply, reply_size, &mine);
	if (err < 0)
		return err;
	if (mine.size >= sizeof(*a) && a->magic == PROTO_MAGIC && a->status < 0)
		err = a->status;
	else if (mine.size != reply_size || a->magic != PROTO_MAGIC ||
		 a->version != PROTO_VERSION || a->type != type)
		err = -EPROTO;
	if (err < 0 || m == NULL)
		message_close(&mine);
	else
		*m = mine;
	return err;
}

int link_ask(int fd, u16 type, void *request, size_t size, void *reply,
	     size_t reply_size, struct message *m)
{
	return link_exchange(fd, type, request, size, -1, reply, reply_size, m);
}

int link_give(int fd, u16 type, int given)
{
	struct proto_plain request, reply;

	return link_exchange(fd, type, &request, sizeof(request), given, &reply, sizeof(reply),
			     NULL);
}

int link_ask_with(int fd, u16 type, void *request, size_t size, int given, void *reply,
		  size_t reply_size)
{
	return link_exchange(fd, type, request, size, given, reply, reply_size, NULL);
}

/* Do processes live whose node has ended? */
static bool link_has_processes(enum place_scope scope, const char *name)
{
	char path[PLACE_PATH];
	bool used = false;

	for (int i = 0; i < PLACE_COUNT && !used; i++) {
		int fd = place_open(i, scope, name, false, path);

		used = fd >= 0 && place_in_use(fd);
		if (fd >= 0)
			close(fd);
	}
	return used;
}

int link_open(bool start)
{
	enum place_scope scope = place_scope_wanted();
	int tries = 0, fd = link_open_at(scope, start);
	char name[NODE_NAME_MAX];

	while (fd == -ECONNREFUSED && tries++ < LINK_TRIES && address_node_name(name) == 0 &&
	       (start || link_has_processes(scope, name)))
		fd = link_open_at(scope, true);
	return fd;
}

int link_do(bool start, int (*ask)(int fd, void *arg), void *arg)
{
	int err, tries = 0;

	do {
		int fd = link_open(start);

		if (fd < 0)
			return fd;
		err = ask(fd, arg);
		close(fd);
	} while (link_has_ended(err) && tries++ < LINK_TRIES);
	return err;
}

int link_open_at(enum place_scope scope, bool start)
{
	struct proto_plain request, reply;
	char name[NODE_NAME_MAX];
	int fd, err = address_node_name(name);

	if (err < 0)
		return err;
	fd = connection_open(name, scope, start);
	if (fd < 0)
		return fd;
	err = link_ask(fd, PROTO_TOOL, &request, sizeof(request), &reply, sizeof(reply), NULL);
	if (err == 0)
		return fd;
	close(fd);
	/* it was just ending */
	return link_has_ended(err) ? -ECONNREFUSED : err;
}
