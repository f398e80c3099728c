/* run.c: runs a program over the doors.
 * In:    a program and its arguments      Out: that program in this process' place
 * Runs:  the only thread                   Locks: none
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/sysfile.h"
#include "command.h"
#include "node/client_priv.h"
#include "node/fabric.h"
#include "node/protocol.h"

#ifndef AV_DOORS_PATH
#define AV_DOORS_PATH "/usr/local/lib/anyverbs"
#define AV_DOORS_BESIDE "../lib/anyverbs"
#endif
#define RUN_DOOR "libibverbs.so.1"
#define RUN_PRELOAD "libanyverbs-preload-libasan.so" /* a link: shim/devices/CMakeLists.txt */
#define RUN_BORN "libanyverbs-born.so"
#define RUN_RSOCKETS "libanyverbs-rsockets.so"

static bool run_has(const char *folder, const char *file)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", folder, file);

	return n > 0 && (size_t)n < sizeof(path) && access(path, R_OK) == 0;
}

/* FOLDER/beside, if the doors are there. */
static bool run_try_doors(const char *folder, const char *beside, char *out, size_t size)
{
	char path[2 * PATH_MAX], *real;
	bool found;

	snprintf(path, sizeof(path), "%s/%s", folder, beside);
	real = sysfile_realpath(path);
	found = real != NULL && run_has(real, RUN_DOOR) &&
		snprintf(out, size, "%s", real) < (int)size;
	free(real);
	return found;
}

int run_find_doors(char *folder, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		if (run_try_doors(self, "../lib/anyverbs", folder, size) ||
		    run_try_doors(self, AV_DOORS_BESIDE, folder, size))
			return 0;
	}
	snprintf(folder, size, "%s", AV_DOORS_PATH);
	return run_has(folder, RUN_DOOR) ? 0 : -ENOENT;
}

/* Puts `first` in front of the variable's value, once. */
static int run_prepend(const char *variable, const char *first)
{
	const char *old = getenv(variable);
	size_t length = strlen(first);
	char *value;
	int err;

	if (old == NULL || old[0] == '\0')
		return setenv(variable, first, 1);
	if (strncmp(old, first, length) == 0 && (old[length] == ':' || old[length] == '\0'))
		return 0;
	value = malloc(length + strlen(old) + 2);
	if (value == NULL)
		return -1;
	sprintf(value, "%s:%s", first, old);
	err = setenv(variable, value, 1);
	free(value);
	return err;
}

/* Preloads a library of anyverbs, if it is installed. A blank ends a path in LD_PRELOAD, and not in
 * LD_LIBRARY_PATH: there the linker finds the library by its name. */
static int run_preload(const char *doors, const char *library)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", doors, library);
	if (!run_has(doors, library))
		return 0;
	return run_prepend("LD_PRELOAD", strchr(doors, ' ') != NULL ? library : path);
}

/* Born memory is opt-in. */
static bool run_wants_born(void)
{
	return env_is_on("ANYVERBS_BORN_SHARED", false);
}

int run_show_host(int fd)
{
	struct proto_fabric_enter request;
	const char *host = node_fabric_host();
	struct proto_plain reply;

	if (host == NULL || strlen(host) >= sizeof(request.host))
		return 0;
	memset(&request, 0, sizeof(request));
	memcpy(request.host, host, strlen(host));
	return link_ask(fd, PROTO_FABRIC_HOST, &request, sizeof(request), &reply, sizeof(reply),
			NULL);
}

static void run_warn_of_host(int err)
{
	const char *host = node_fabric_host();

	if (err == -ENOENT)
		command_fail(0, "warning: the fabric has no host %s", host);
	else if (err == -ENODEV)
		command_fail(0, "warning: the node carries no fabric (`anyverbs fabric up`)");
	else if (err < 0)
		command_fail(0, "warning: the host %s has no /sys: %s", host, absent_strerror(err));
}

/* Programs that read /sys before they call the library need the node's tree. Without a node the
 * program runs all the same, to print its help, say. */
static void run_start_node(void)
{
	int fd = link_open(true);

	if (fd < 0) {
		command_fail(
			0, "warning: the node cannot be started: %s (ANYVERBS_LOG=error says more)",
			fd == -ECONNREFUSED ? "no anyverbsd answers" : absent_strerror(fd));
		return;
	}
	run_warn_of_host(run_show_host(fd));
	close(fd);
}

/* Reads the options, and sets the settings among them. The number of words that they take, or less
 * than 0: one is unknown. */
static int run_options(int argc, char **argv, bool *rsockets, const char **host)
{
	int i;

	for (i = 0; i < argc && (argv[i][0] == '-' || settings_is_one(argv[i])); i++) {
		if (strcmp(argv[i], "--") == 0)
			return i + 1;
		if (settings_is_one(argv[i])) {
			if (settings_set(argv[i]) < 0)
				return -1 - i;
			continue;
		}
		if (strcmp(argv[i], "--host") == 0 && i + 1 < argc) {
			*host = argv[++i];
			continue;
		}
		if (strcmp(argv[i], "--rsockets") != 0)
			return -1 - i;
		*rsockets = true;
	}
	return i;
}

int run_set_host(const char *host)
{
	if (host[0] == '\0' || strlen(host) >= NODE_HOST_NAME || strchr(host, ' ') != NULL)
		return -EINVAL;
	if (setenv("ANYVERBS_HOST", host, 1) < 0 || setenv("ANYVERBS_NODE", LINK_FABRIC, 0) < 0)
		return -ENOMEM;
	return 0;
}

/* Sets LD_PRELOAD; the shim that AddressSanitizer looks for ends as the first in the list. */
static int run_preload_all(const char *doors, bool rsockets)
{
	int err = run_wants_born() ? run_preload(doors, RUN_BORN) : 0;

	if (err == 0 && rsockets)
		err = run_preload(doors, RUN_RSOCKETS);
	return err == 0 ? run_preload(doors, RUN_PRELOAD) : err;
}

int command_run(int argc, char **argv)
{
	char doors[PATH_MAX];
	const char *host = NULL;
	bool rsockets = false;
	int err = run_options(argc, argv, &rsockets, &host);

	if (err < 0)
		return command_fail(EXIT_USAGE, "run: unknown option, or no value: %s",
				    argv[-1 - err]);
	argc -= err;
	argv += err;
	if (host != NULL && run_set_host(host) < 0)
		return command_fail(EXIT_USAGE, "run: %s is no name of a host", host);
	if (argc == 0)
		return command_fail(EXIT_USAGE, "run: no program given");
	if (run_find_doors(doors, sizeof(doors)) < 0)
		return access("/proc/self/exe", F_OK) == 0 ?
			       command_fail(EXIT_CANNOT_RUN, "no %s in %s", RUN_DOOR, doors) :
			       command_fail(EXIT_CANNOT_RUN,
					    "no %s in %s, and without /proc it cannot be sought "
					    "beside this command", RUN_DOOR, doors);
	/* LD_LIBRARY_PATH takes them as separators, and nothing escapes them */
	if (strpbrk(doors, ":;") != NULL)
		return command_fail(EXIT_CANNOT_RUN,
				    "the folder %s must have no ':' or ';' in its name", doors);
	if (rsockets && !run_has(doors, RUN_RSOCKETS))
		return command_fail(EXIT_CANNOT_RUN, "no %s in %s", RUN_RSOCKETS, doors);
	err = run_prepend("LD_LIBRARY_PATH", doors);
	if (err == 0)
		err = run_preload_all(doors, rsockets);
	if (err < 0)
		return command_fail(EXIT_CANNOT_RUN, "no memory");
	run_start_node();
	execvp(argv[0], argv);
	err = errno;
	return command_fail(err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, "%s: %s", argv[0],
			    strerror(err));
}
