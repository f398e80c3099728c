/* main.c: anyverbsd, the node: reads its arguments and runs the daemon.
 * In:    arguments, ANYVERBS_* variables      Out: exit code 0, 1 (could not begin), 2 (usage)
 * Runs:  the only thread                       Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/daemon.h"

static const char main_usage[] =
	"usage: anyverbsd [--node NAME] [--machine]\n"
	"\n"
	"The anyverbs node: starts by itself when the first process needs it. In the\n"
	"foreground it serves node NAME (default: $ANYVERBS_NODE or \"default\") until it\n"
	"is idle for $ANYVERBS_IDLE_S seconds (300; \"never\"), stopped or interrupted.\n"
	"With --machine it serves all network namespaces, and may carry a fabric.\n";

static const char main_name_rule[] =
	"a node's name has at most 31 letters, digits, '.', '_', '-', and no '.' in front";

static int main_misused(const char *what)
{
	fprintf(stderr, "anyverbsd: %s\n%s", what, main_usage);
	return 2;
}

/* The parent may have closed these: no other file may get their numbers, and then log messages. */
static void main_fill_standard_fds(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			(void)!memfd_create("null", 0);
}

int main(int argc, char **argv)
{
	struct daemon_options options;
	int err;

	main_fill_standard_fds();
	signal(SIGXFSZ, SIG_IGN); /* RLIMIT_FSIZE, inherited: write() returns EFBIG, too */
	err = daemon_options_init(&options);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			fputs(main_usage, stdout);
			return 0;
		} else if (strcmp(argv[i], "--spawned") == 0) {
			options.spawned = true;
		} else if (strcmp(argv[i], "--machine") == 0) {
			options.scope = PLACE_MACHINE;
		} else if (strcmp(argv[i], "--successor") == 0) {
			options.successor = true;
		} else if (strcmp(argv[i], "--node") == 0 && i + 1 < argc) {
			if (!address_name_valid(argv[++i]))
				return main_misused(main_name_rule);
			snprintf(options.node, sizeof(options.node), "%s", argv[i]);
			err = 0;
		} else {
			return main_misused("unknown argument");
		}
	}
	if (err < 0)
		return main_misused(main_name_rule);
	err = daemon_run(&options);
	if (err == -EADDRINUSE && options.spawned)
		return 0;
	if (err < 0)
		fprintf(stderr, "anyverbsd: node %s: %s\n", options.node,
			err == -EADDRINUSE ? "is up already" : strerror(-err));
	return err < 0;
}
