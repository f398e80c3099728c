/* absent.c: what commands say of a node that is not up, or does not answer.
 * In:    the environment, a negative errno    Out: words
 * Runs:  the only thread                      Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "node/client_priv.h"

const char *absent_strerror(int err)
{
	static char text[sizeof("node  does not answer") + NODE_NAME_MAX];
	char name[NODE_NAME_MAX];

	if (err != -ETIMEDOUT || address_node_name(name) < 0)
		return strerror(-err);
	snprintf(text, sizeof(text), "node %s does not answer", name);
	return text;
}

/* Tools look at the node "default" where nothing is set, and a fabric has a node of its own. */
static bool absent_has_fabric(void)
{
	const char *node = getenv("ANYVERBS_NODE");
	int fd;

	if ((node != NULL && node[0] != '\0') || setenv("ANYVERBS_NODE", LINK_FABRIC, 1) != 0)
		return false;
	fd = link_open_at(PLACE_MACHINE, false);
	(void)unsetenv("ANYVERBS_NODE");
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void absent_say(void)
{
	puts("no node is up (the first verbs program starts one)");
	if (absent_has_fabric())
		puts("the fabric's node is: ANYVERBS_NODE=" LINK_FABRIC);
}
