/* fabric.c: brings the InfiniBand fabric up, shows it, changes it and takes it down.
 * In:    a verb and its arguments     Out: an exit code; the fabric on standard output
 * Runs:  the only thread              Locks: none
 */
#include "fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sysfile.h"
#include "node/client_priv.h"

#define FABRIC_WAIT_NS 2000000
enum { FABRIC_WAITS = 30000 /* a minute at least */ };

static int fabric_fail(int err)
{
	if (err == -ECONNREFUSED || err == -ENODEV)
		return command_fail(EXIT_FAILED, "fabric: no fabric is up");
	return command_fail(EXIT_FAILED, "fabric: %s", absent_strerror(err));
}

/* Is there a fabric that a node before has left? */
static bool fabric_is_left(void)
{
	char path[PLACE_PATH], name[NODE_NAME_MAX];
	bool left = false;

	if (address_node_name(name) < 0)
		return false;
	for (int i = 0; i < PLACE_COUNT && !left; i++) {
		int fd = place_open(i, PLACE_MACHINE, name, false, path);

		left = fd >= 0 && sysfile_access(fd, "fabric", R_OK) == 0;
		if (fd >= 0)
			close(fd);
	}
	return left;
}

/* The node that carries the fabric; one that was killed is started again. */
static int fabric_link(void)
{
	int fd = link_open_at(PLACE_MACHINE, false);

	return fd == -ECONNREFUSED && fabric_is_left() ? link_open_at(PLACE_MACHINE, true) : fd;
}

/* ---- up and down ----------------------------------------------------------------------------- */

/* All of it, from a pipe, too. A negative errno; -EFBIG: no topology is so long. */
static ssize_t fabric_read_all(int fd, char text[TOPO_TEXT_MAX + 1])
{
	size_t size = 0;
	ssize_t n;

	while ((n = read(fd, text + size, TOPO_TEXT_MAX + 1 - size)) > 0) {
		size += (size_t)n;
		if (size > TOPO_TEXT_MAX)
			return -EFBIG;
	}
	text[size] = '\0';
	return n < 0 ? -errno : (ssize_t)size;
}

static void fabric_cannot_read(const char *path, int err)
{
	if (err == -ENOENT && strchr(path, ':') != NULL)
		command_fail(0, "fabric: cannot read %s: %s; is `--topology %s` meant?", path,
			     strerror(-err), path);
	else
		command_fail(0, "fabric: cannot read %s: %s", path, strerror(-err));
}

/* Reads a file whole; NULL and a message if it cannot be read. */
static char *fabric_read_file(const char *path, size_t *size)
{
	char *text = malloc(TOPO_TEXT_MAX + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = text == NULL ? -ENOMEM : fd < 0 ? -errno : fabric_read_all(fd, text);

	if (fd >= 0)
		close(fd);
	if (n >= 0) {
		*size = (size_t)n;
		return text;
	}
	free(text);
	fabric_cannot_read(path, (int)n);
	return NULL;
}

/* The node would say only that it is wrong; this says where. */
static int fabric_judge(const char *source, const char *text, size_t size, bool is_spec)
{
	struct topo_error e;
	struct topo t;
	int err = is_spec ? topo_generate(text, &t, &e) : topo_parse(text, size, &t, &e);

	if (err == 0) {
		topo_free(&t);
		return EXIT_OK;
	}
	if (e.message[0] == '\0')
		return command_fail(EXIT_FAILED, "%s: %s", source, strerror(-err));
	if (e.line == 0)
		return command_fail(EXIT_FAILED, "%s: %s", source, e.message);
	return command_fail(EXIT_FAILED, "%s:%u:%u: %s", source, e.line, e.column, e.message);
}

/* FABRIC_UP with the text in a memory file. */
static int fabric_send_up(int fd, const char *source, const char *text, size_t size, u32 flags)
{
	struct proto_fabric_up request;
	struct proto_plain reply;
	int given = memfd_create("topology", MFD_CLOEXEC), err = -EIO;

	if (given < 0)
		return -errno;
	memset(&request, 0, sizeof(request));
	snprintf(request.source, sizeof(request.source), "%s", source);
	request.flags = flags;
	if (write(given, text, size) == (ssize_t)size)
		err = link_ask_with(fd, PROTO_FABRIC_UP, &request, sizeof(request), given, &reply,
				    sizeof(reply));
	close(given);
	return err;
}

/* The node's own subnet managers have done what they can: links are active. */
static int fabric_wait_for_sm(int fd)
{
	struct proto_fabric_show show;
	const struct timespec pause = { .tv_nsec = FABRIC_WAIT_NS };

	for (u32 i = 0; i < FABRIC_WAITS; i++) {
		struct proto_plain request;
		int err = link_ask(fd, PROTO_FABRIC_SHOW, &request, sizeof(request), &show,
				   sizeof(show), NULL);

		if (err < 0)
			return err;
		if (show.sm_state == PROTO_FABRIC_SM_NONE || show.sm_busy == 0)
			return 0;
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

static int fabric_start(const char *source, const char *text, size_t size, u32 flags)
{
	int fd, err = fabric_judge(source, text, size, (flags & PROTO_FABRIC_SPEC) != 0);

	if (err != EXIT_OK)
		return err;
	fd = link_open_at(PLACE_MACHINE, true);
	if (fd == -ECONNREFUSED)
		return command_fail(EXIT_FAILED,
				    "fabric: no node: no anyverbsd answers. It needs a folder that "
				    "it may write to, and\nthat has room: XDG_RUNTIME_DIR, /tmp or "
				    "/dev/shm");
	if (fd < 0)
		return command_fail(EXIT_FAILED, "fabric: no node: %s", absent_strerror(fd));
	err = fabric_send_up(fd, source, text, size, flags);
	if (err == 0)
		err = fabric_wait_for_sm(fd);
	close(fd);
	if (err == -EEXIST)
		return command_fail(EXIT_FAILED, "fabric: a fabric is up already");
	return err < 0 ? command_fail(EXIT_FAILED, "fabric: %s", absent_strerror(err)) : EXIT_OK;
}

struct fabric_words {
	const char *spec, *file;
	u32 flags;
};

/* [--no-sm] [--topology SPEC | FILE]: EXIT_OK, or EXIT_USAGE after a message. */
static int fabric_up_words(int argc, char **argv, struct fabric_words *out)
{
	static const char option[] = "--topology";
	const size_t length = sizeof(option) - 1;

	*out = (struct fabric_words){ .flags = 0 };
	for (int i = 0; i < argc; i++) {
		bool more = out->spec == NULL && out->file == NULL;

		if (strcmp(argv[i], "--no-sm") == 0)
			out->flags = PROTO_FABRIC_NO_SM;
		else if (more && strcmp(argv[i], option) == 0 && i + 1 < argc)
			out->spec = argv[++i];
		else if (more && strncmp(argv[i], option, length) == 0 && argv[i][length] == '=')
			out->spec = argv[i] + length + 1;
		else if (more && argv[i][0] != '-')
			out->file = argv[i];
		else
			return command_fail(EXIT_USAGE,
					    "fabric: up expects --topology SPEC or a file, and "
					    "--no-sm, but not here: %s", argv[i]);
	}
	return EXIT_OK;
}

static int fabric_up(int argc, char **argv)
{
	struct fabric_words words;
	size_t size;
	char *text;
	int err = fabric_up_words(argc, argv, &words);

	if (err != EXIT_OK)
		return err;
	if (words.spec == NULL && words.file == NULL)
		words.spec = "star:2";
	if (words.spec != NULL)
		return fabric_start(words.spec, words.spec, strlen(words.spec),
				    words.flags | PROTO_FABRIC_SPEC);
	text = fabric_read_file(words.file, &size);
	if (text == NULL)
		return EXIT_FAILED;
	err = fabric_start(words.file, text, size, words.flags);
	free(text);
	return err;
}

static int fabric_down(int argc, char **argv)
{
	struct proto_fabric_down request = { .force = 0 };
	struct proto_plain reply;
	int fd, err;

	if (argc == 1 && strcmp(argv[0], "--force") == 0)
		request.force = 1;
	else if (argc != 0)
		return command_fail(EXIT_USAGE, "fabric: down expects --force or nothing");
	fd = fabric_link();
	if (fd < 0)
		return fabric_fail(fd);
	err = link_ask(fd, PROTO_FABRIC_DOWN, &request, sizeof(request), &reply, sizeof(reply),
		       NULL);
	close(fd);
	if (err == -EBUSY)
		return command_fail(EXIT_FAILED,
				    "fabric: processes are on its hosts; --force ends it anyway");
	return err < 0 ? fabric_fail(err) : EXIT_OK;
}

/* ---- showing --------------------------------------------------------------------------------- */

/* Draws with graphviz. */
static int fabric_svg(const struct plan *p)
{
	FILE *dot;
	int status;

	if (system("command -v dot > /dev/null") != 0)
		return command_fail(EXIT_FAILED,
				    "fabric: --svg needs graphviz' program dot; --dot does not");
	fflush(stdout);
	dot = popen("dot -Tsvg", "w");
	if (dot == NULL)
		return command_fail(EXIT_FAILED, "fabric: %s", strerror(errno));
	(void)show_dot(p, dot);
	status = pclose(dot);
	return status == 0 ? EXIT_OK : command_fail(EXIT_FAILED, "fabric: dot has failed");
}

static int fabric_show_as(const struct plan *p, const char *form)
{
	if (form == NULL)
		return show_text(p);
	if (strcmp(form, "--json") == 0)
		return show_json(p);
	if (strcmp(form, "--dot") == 0)
		return show_dot(p, stdout);
	if (strcmp(form, "--svg") == 0)
		return fabric_svg(p);
	return command_fail(EXIT_USAGE, "fabric: show expects --json, --dot, --svg or nothing");
}

static int fabric_show(int argc, char **argv)
{
	int err, fd = argc > 1 ? -EINVAL : fabric_link();
	struct plan p;

	if (argc > 1)
		return fabric_show_as(NULL, "");
	if (fd < 0)
		return fabric_fail(fd);
	err = plan_open(&p, fd);
	close(fd);
	if (err < 0)
		return fabric_fail(err);
	err = fabric_show_as(&p, argc == 1 ? argv[0] : NULL);
	plan_close(&p);
	return err;
}

static int fabric_hosts(int argc, char **argv)
{
	int err, fd = fabric_link();
	struct plan p;

	(void)argv;
	if (argc != 0)
		return command_fail(EXIT_USAGE, "fabric: hosts takes no arguments");
	if (fd < 0)
		return fabric_fail(fd);
	err = plan_open(&p, fd);
	close(fd);
	if (err < 0)
		return fabric_fail(err);
	err = show_hosts(&p);
	plan_close(&p);
	return err;
}

/* ---- changing -------------------------------------------------------------------------------- */

static int fabric_send_command(int fd, u32 verb, u32 index, u32 counter, u32 value)
{
	struct proto_fabric_command request = {
		.verb = verb, .index = index, .counter = counter, .value = value
	};
	struct proto_plain reply;

	return link_ask(fd, PROTO_FABRIC_COMMAND, &request, sizeof(request), &reply, sizeof(reply),
			NULL);
}

/* The cable of one port, or, with number 0, all cables of the node. */
static int fabric_set_links(int fd, const struct plan *p, const struct fabric_node_attr *n,
			    u32 number, bool up)
{
	u32 first = number != 0 ? number : 1, last = number != 0 ? number : n->ports;
	struct fabric_port_attr a;
	int err = 0;

	for (u32 i = first; err == 0 && i <= last; i++) {
		if (number == 0 &&
		    (!plan_port(p, n->first_port + i, &a) || a.peer == FABRIC_NONE))
			continue;
		err = fabric_send_command(fd, PROTO_FABRIC_LINK, n->first_port + i, 0, up);
	}
	if (err == -ENOTCONN)
		return command_fail(EXIT_FAILED, "fabric: %s has no cable at port %u", n->desc,
				    number);
	return err < 0 ? fabric_fail(err) : EXIT_OK;
}

static int fabric_count_errors(int fd, const struct fabric_node_attr *n, u32 number, char **argv)
{
	char *end = NULL;
	unsigned long count = strtoul(argv[1], &end, 10);
	u32 which = 0;

	if (number == 0)
		return command_fail(EXIT_USAGE, "fabric: error expects NODE:PORT");
	while (which < FABRIC_ERRORS && strcmp(plan_error_name(which), argv[0]) != 0)
		which++;
	if (which == FABRIC_ERRORS) {
		fputs("anyverbs: fabric: a counter is", stderr);
		for (u32 i = 0; i < FABRIC_ERRORS; i++)
			fprintf(stderr, " %s", plan_error_name(i));
		fputc('\n', stderr);
		return EXIT_USAGE;
	}
	if (end == argv[1] || *end != '\0' || count == 0 || count > UINT32_MAX)
		return command_fail(EXIT_USAGE, "fabric: %s is no number of errors", argv[1]);
	which = (u32)-fabric_send_command(fd, PROTO_FABRIC_ERROR, n->first_port + number, which,
					  (u32)count);
	return which == 0 ? EXIT_OK : fabric_fail(-(int)which);
}

/* A verb about one node or port; its words behind that. */
static int fabric_change_at(int fd, const struct plan *p, const char *verb, int argc, char **argv)
{
	struct fabric_node_attr n;
	u32 index, number;
	int err = plan_find_port(p, argv[0], &n, &index, &number);

	if (err != EXIT_OK)
		return err;
	text_clean(n.desc, sizeof(n.desc));
	if (number != 0 && (strcmp(verb, "fail") == 0 || strcmp(verb, "reboot") == 0))
		return command_fail(EXIT_USAGE,
				    "fabric: %s expects NODE without a port: %s. `anyverbs fabric "
				    "link %s down`\npulls the cable of one port", verb, argv[0],
				    argv[0]);
	if (strcmp(verb, "error") == 0)
		return fabric_count_errors(fd, &n, number, argv + 1);
	if (strcmp(verb, "reboot") == 0) {
		err = fabric_send_command(fd, PROTO_FABRIC_REBOOT, index, 0, 0);
		return err < 0 ? fabric_fail(err) : EXIT_OK;
	}
	return fabric_set_links(fd, p, &n, number, argc > 1 && strcmp(argv[1], "up") == 0);
}

static int fabric_change(const char *verb, int argc, char **argv)
{
	struct plan p;
	int fd, err;

	if (strcmp(verb, "link") == 0 &&
	    (argc != 2 || (strcmp(argv[1], "up") != 0 && strcmp(argv[1], "down") != 0)))
		return command_fail(EXIT_USAGE, "fabric: link expects NODE[:PORT] up or down");
	if (strcmp(verb, "error") == 0 && argc != 3)
		return command_fail(EXIT_USAGE, "fabric: error expects NODE:PORT COUNTER N");
	if ((strcmp(verb, "reboot") == 0 || strcmp(verb, "fail") == 0) && argc != 1)
		return command_fail(EXIT_USAGE, "fabric: %s expects NODE", verb);
	fd = fabric_link();
	if (fd < 0)
		return fabric_fail(fd);
	err = plan_open(&p, fd);
	if (err < 0) {
		close(fd);
		return fabric_fail(err);
	}
	err = fabric_change_at(fd, &p, verb, argc, argv);
	plan_close(&p);
	close(fd);
	return err;
}

/* Takes `--name N` out of the words. False: it has no name behind it. */
static bool fabric_take_name(int *argc, char **argv)
{
	const char *node = getenv("ANYVERBS_NODE"), *name = NULL;

	for (int i = 0; i < *argc; i++) {
		if (strcmp(argv[i], "--name") != 0)
			continue;
		if (i + 1 >= *argc || !address_name_valid(argv[i + 1]))
			return false;
		name = argv[i + 1];
		memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 1) * sizeof(*argv));
		*argc -= 2;
		break;
	}
	if (name == NULL && node != NULL && node[0] != '\0')
		return true;
	return setenv("ANYVERBS_NODE", name != NULL ? name : LINK_FABRIC, 1) == 0;
}

int command_fabric(int argc, char **argv)
{
	static const char *const changes[] = { "link", "fail", "reboot", "error" };
	static const struct {
		const char *verb;
		int (*fn)(int argc, char **argv);
	} verbs[] = { { "up", fabric_up },
		      { "down", fabric_down },
		      { "show", fabric_show },
		      { "hosts", fabric_hosts } };

	if (!fabric_take_name(&argc, argv))
		return command_fail(EXIT_USAGE, "fabric: --name expects the name of a node");
	for (size_t i = 0; argc > 0 && i < ARRAY_LEN(verbs); i++)
		if (strcmp(argv[0], verbs[i].verb) == 0)
			return verbs[i].fn(argc - 1, argv + 1);
	for (size_t i = 0; argc > 0 && i < ARRAY_LEN(changes); i++)
		if (strcmp(argv[0], changes[i]) == 0)
			return fabric_change(changes[i], argc - 1, argv + 1);
	return command_fail(EXIT_USAGE, "fabric: expects up, down, show, hosts, link, fail, reboot "
					"or error");
}
