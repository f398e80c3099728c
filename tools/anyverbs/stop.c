/* stop.c: ends the node.
 * In:    --force              Out: an exit code
 * Runs:  the only thread      Locks: none
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "command.h"

enum { STOP_WAIT_S = 5 };

/* Waits for the end of the connection, which is the end of the node: the next command finds
 * none. */
static void stop_wait_end(int fd)
{
	char byte;
	struct message m;
	u64 deadline = clock_now_ns() + STOP_WAIT_S * NS_PER_S;

	while (message_wait(fd, deadline) == 0)
		if (message_receive(fd, &byte, sizeof(byte), &m) == -ECONNRESET)
			return;
}

int command_stop(int argc, char **argv)
{
	struct proto_stop request = { .force = 0 };
	struct proto_plain reply;
	int fd, err;

	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--force") != 0)
			return command_fail(EXIT_USAGE, "stop: unknown argument %s", argv[i]);
		request.force = 1;
	}
	/* the next one, if processes want it, is not started for this */
	fd = link_open_at(place_scope_wanted(), false);
	if (fd == -ECONNREFUSED)
		return EXIT_OK;
	if (fd < 0)
		return command_fail(EXIT_FAILED, "stop: %s", absent_strerror(fd));
	err = link_ask(fd, PROTO_STOP, &request, sizeof(request), &reply, sizeof(reply), NULL);
	if (err == 0)
		stop_wait_end(fd);
	close(fd);
	if (err == -EBUSY)
		return command_fail(EXIT_FAILED,
				    "stop: processes are attached (see `anyverbs status`); "
				    "--force ends it anyway");
	if (err == -ENOTEMPTY)
		return command_fail(EXIT_FAILED, "stop: the node carries a fabric (`anyverbs "
						 "fabric down`); --force ends both");
	return err < 0 ? command_fail(EXIT_FAILED, "stop: %s", absent_strerror(err)) : EXIT_OK;
}
