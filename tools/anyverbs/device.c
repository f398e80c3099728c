/* device.c: adds, removes and lists the node's devices.
 * In:    add|remove NAME, list     Out: an exit code; the list on standard output
 * Runs:  the only thread           Locks: none
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "node/address.h"

int device_read(int fd, u32 index, struct proto_device_reply *out)
{
	struct proto_device_read request = { .index = index };
	int err = link_ask(fd, PROTO_DEVICE_READ, &request, sizeof(request), out, sizeof(*out),
			   NULL);

	if (err < 0)
		return err;
	/* the indexes rise, so that a loop from the next one ends */
	if (out->index < index || out->index >= NODE_DEVICES)
		return -EPROTO;
	text_clean(out->config.device, sizeof(out->config.device));
	text_clean(out->config.sysfs, sizeof(out->config.sysfs));
	for (u32 i = 0; i < NODE_GIDS; i++)
		text_clean(out->config.gids[i].ifname, sizeof(out->config.gids[i].ifname));
	return 0;
}

struct device_table {
	struct proto_device_reply all[NODE_DEVICES];
	u32 count;
};

static int device_read_all(int fd, void *arg)
{
	struct device_table *t = arg;
	u32 next = 0;
	int err = 0;

	for (t->count = 0; t->count < NODE_DEVICES; t->count++) {
		err = device_read(fd, next, &t->all[t->count]);
		if (err < 0)
			break;
		next = t->all[t->count].index + 1;
	}
	return err == -ENODEV ? 0 : err;
}

static int device_list(void)
{
	static struct device_table t;
	int err = link_do(false, device_read_all, &t);

	if (err == -ECONNREFUSED)
		return command_fail(EXIT_FAILED, "device: no node is up");
	if (err < 0)
		return command_fail(EXIT_FAILED, "device: %s", absent_strerror(err));
	for (u32 i = 0; i < t.count; i++)
		printf("%s %016llx %s\n", t.all[i].config.device,
		       (unsigned long long)t.all[i].config.node_guid,
		       t.all[i].config.port_up ? "ACTIVE" : "DOWN");
	return EXIT_OK;
}

/* Explains the node's refusal. */
static int device_refused(const char *name, int err)
{
	switch (err) {
	case -EINVAL:
		return command_fail(EXIT_USAGE, "device: a name is roce and a number, not %s",
				    name);
	case -EEXIST:
		return command_fail(EXIT_FAILED, "device: %s is there already", name);
	case -ENODEV:
		return command_fail(EXIT_FAILED, "device: there is no device %s", name);
	case -EPERM:
		return command_fail(EXIT_FAILED, "device: %s stays: it is the node's first", name);
	case -ENOSPC:
		return command_fail(EXIT_FAILED, "device: no room for %s: a node has %d at most",
				    name, NODE_DEVICES);
	default:
		return command_fail(EXIT_FAILED, "device: %s", absent_strerror(err));
	}
}

struct device_change {
	u16 type;
	struct proto_device_name request;
	u32 tries;
};

/* A node that ended without a reply may have done it, and its next node shows that. */
static int device_ask(int fd, void *arg)
{
	struct device_change *c = arg;
	struct proto_plain reply;
	int err = link_ask(fd, c->type, &c->request, sizeof(c->request), &reply, sizeof(reply),
			   NULL);

	if (c->tries++ > 0 && err == (c->type == PROTO_DEVICE_ADD ? -EEXIST : -ENODEV))
		err = 0;
	return err;
}

static int device_change(u16 type, const char *name)
{
	struct device_change change = { .type = type };
	int err;

	if (!address_device_valid(name))
		return device_refused(name, -EINVAL);
	memcpy(change.request.name, name, strlen(name));
	err = link_do(true, device_ask, &change);
	return err < 0 ? device_refused(name, err) : EXIT_OK;
}

int command_device(int argc, char **argv)
{
	if (argc == 1 && strcmp(argv[0], "list") == 0)
		return device_list();
	if (argc == 2 && strcmp(argv[0], "add") == 0)
		return device_change(PROTO_DEVICE_ADD, argv[1]);
	if (argc == 2 && strcmp(argv[0], "remove") == 0)
		return device_change(PROTO_DEVICE_REMOVE, argv[1]);
	return command_fail(EXIT_USAGE, "device: expects add NAME, remove NAME or list");
}
