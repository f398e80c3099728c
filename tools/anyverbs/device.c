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

static int device_list(void)
{
	struct proto_device_reply reply;
	int err, fd = link_open(false);

	if (fd == -ECONNREFUSED)
		return command_fail(EXIT_FAILED, "device: no node is up");
	if (fd < 0)
		return command_fail(EXIT_FAILED, "device: %s", absent_strerror(fd));
	for (u32 i = 0; (err = device_read(fd, i, &reply)) == 0; i = reply.index + 1)
		printf("%s %016llx %s\n", reply.config.device,
		       (unsigned long long)reply.config.node_guid,
		       reply.config.port_up ? "ACTIVE" : "DOWN");
	close(fd);
	return err == -ENODEV ? EXIT_OK
			      : command_fail(EXIT_FAILED, "device: %s", absent_strerror(err));
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

static int device_change(u16 type, const char *name)
{
	struct proto_device_name request = { .name = "" };
	struct proto_plain reply;
	int fd, err;

	if (!address_device_valid(name))
		return device_refused(name, -EINVAL);
	memcpy(request.name, name, strlen(name));
	fd = link_open(true);
	if (fd < 0)
		return command_fail(EXIT_FAILED, "device: %s", absent_strerror(fd));
	err = link_ask(fd, type, &request, sizeof(request), &reply, sizeof(reply), NULL);
	close(fd);
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
