/* port.c: takes the port down and up.
 * In:    [DEVICE] up|down     Out: an exit code
 * Runs:  the only thread      Locks: none
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

/* Parses the arguments into a request. False: invalid. */
static bool port_parse(int argc, char **argv, struct proto_port *request)
{
	const char *state = argc > 0 ? argv[argc - 1] : "";

	memset(request, 0, sizeof(*request));
	request->port = 1;
	request->up = strcmp(state, "up") == 0;
	if (argc > 2 || (!request->up && strcmp(state, "down") != 0))
		return false;
	if (argc == 2 && (argv[0][0] == '\0' || strlen(argv[0]) >= sizeof(request->device)))
		return false;
	if (argc == 2)
		memcpy(request->device, argv[0], strlen(argv[0]));
	return true;
}

static int port_ask(int fd, void *arg)
{
	struct proto_port *request = arg;
	struct proto_plain reply;

	return link_ask(fd, PROTO_PORT, request, sizeof(*request), &reply, sizeof(reply), NULL);
}

int command_port(int argc, char **argv)
{
	struct proto_port request;
	int err;

	if (!port_parse(argc, argv, &request))
		return command_fail(EXIT_USAGE, "port: expects [DEVICE] up or [DEVICE] down");
	err = link_do(true, port_ask, &request);
	if (err == -ENODEV)
		return command_fail(EXIT_FAILED, "port: there is no device %s", request.device);
	return err < 0 ? command_fail(EXIT_FAILED, "port: %s", absent_strerror(err)) : EXIT_OK;
}
