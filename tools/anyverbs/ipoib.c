/* ipoib.c: starts, ends and lists IPoIB interfaces of hosts of the fabric. Each is a program,
 * anyverbs-ipoib (tools/ipoib), found by its command line: it leaves no file.
 * In:    a verb and its arguments, /proc    Out: an exit code; the list on standard output
 * Runs:  the only thread; a child that looks into a network namespace    Locks: none
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "command.h"

#define IPOIB_PROGRAM "anyverbs-ipoib"
#define IPOIB_WAIT_NS 10000000
/* So long a program has to end by itself, and so long one that is killed. */
enum { IPOIB_TERM_S = 3, IPOIB_KILL_S = 10, IPOIB_WORDS = 16384, IPOIB_ENDS = 16 };

/* An interface's program. */
struct ipoib_program {
	int pid;
	char host[64], name[IFNAMSIZ];
};

/* Which are meant; NULL: all. */
struct ipoib_choice {
	const char *host, *name;
};

/* ---- up -------------------------------------------------------------------------------------- */

static const char *ipoib_option(int argc, char **argv, const char *option)
{
	size_t length = strlen(option);

	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], option) == 0)
			return i + 1 < argc ? argv[i + 1] : NULL;
		if (strncmp(argv[i], option, length) == 0 && argv[i][length] == '=')
			return argv[i] + length + 1;
	}
	return NULL;
}

/* EXIT_OK: the fabric has the host. Else a message says why not. */
static int ipoib_find_host(const char *host)
{
	int fd = link_open(true), err;

	if (fd < 0)
		return command_fail(EXIT_FAILED,
				    "ipoib: no node: %s (ANYVERBS_LOG=error says more)",
				    absent_strerror(fd));
	err = run_show_host(fd);
	close(fd);
	if (err == -ENOENT)
		return command_fail(EXIT_FAILED, "ipoib: the fabric has no host %s", host);
	if (err == -ENODEV)
		return command_fail(EXIT_FAILED, "ipoib: no fabric of this user is up "
						 "(`anyverbs fabric up`)");
	return err < 0 ? command_fail(EXIT_FAILED, "ipoib: host %s: %s", host, absent_strerror(err))
		       : EXIT_OK;
}

/* In this process' place; the program judges the arguments. */
static int ipoib_up(int argc, char **argv)
{
	const char *host = ipoib_option(argc, argv, "--host");
	char doors[PATH_MAX], path[PATH_MAX + sizeof(IPOIB_PROGRAM)];
	char **words = calloc((size_t)argc + 2, sizeof(*words));
	int code;

	if (host == NULL)
		return command_fail(EXIT_USAGE, "ipoib: up expects --host HOST");
	if (run_set_host(host) < 0)
		return command_fail(EXIT_USAGE, "ipoib: %s is no name of a host", host);
	if (words == NULL || run_find_doors(doors, sizeof(doors)) < 0)
		return command_fail(EXIT_CANNOT_RUN, "ipoib: the libraries are not found");
	code = ipoib_find_host(host);
	if (code != EXIT_OK)
		return code;
	snprintf(path, sizeof(path), "%s/" IPOIB_PROGRAM, doors);
	words[0] = (char *)IPOIB_PROGRAM;
	memcpy(words + 1, argv, (size_t)argc * sizeof(*words));
	execv(path, words);
	return command_fail(EXIT_CANNOT_RUN, "%s: %s", path, strerror(errno));
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Words with a zero behind each, and one more. Returns how many bytes, 0: none. */
static size_t ipoib_read_words(int pid, const char *file, char out[IPOIB_WORDS])
{
	char path[64];
	ssize_t n = 0;
	size_t size = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && size < IPOIB_WORDS - 1 &&
	       (n = read(fd, out + size, IPOIB_WORDS - 1 - size)) > 0)
		size += (size_t)n;
	if (fd >= 0)
		close(fd);
	out[size] = '\0';
	return size;
}

/* Is it the program, run by this user? */
static bool ipoib_is_program(int pid)
{
	char path[64], exe[PATH_MAX];
	const char *slash;
	struct stat st;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n <= 0)
		return false;
	exe[n] = '\0';
	slash = strrchr(exe, '/');
	snprintf(path, sizeof(path), "/proc/%d", pid);
	return slash != NULL && strncmp(slash + 1, IPOIB_PROGRAM, sizeof(IPOIB_PROGRAM) - 1) == 0 &&
	       stat(path, &st) == 0 && st.st_uid == geteuid();
}

/* Is it of the fabric that the environment says? */
static bool ipoib_is_of_node(int pid)
{
	static const char variable[] = "ANYVERBS_NODE=";
	const char *mine = getenv("ANYVERBS_NODE");
	char words[IPOIB_WORDS];
	size_t size = ipoib_read_words(pid, "environ", words);

	for (size_t at = 0; at < size; at += strlen(words + at) + 1)
		if (strncmp(words + at, variable, sizeof(variable) - 1) == 0)
			return strcmp(words + at + sizeof(variable) - 1,
				      mine != NULL && mine[0] != '\0' ? mine : "fabric") == 0;
	return false;
}

static bool ipoib_read(int pid, struct ipoib_program *out)
{
	char words[IPOIB_WORDS], *argv[256];
	const char *host, *name;
	size_t size;
	int argc = 0;

	if (!ipoib_is_program(pid) || !ipoib_is_of_node(pid))
		return false;
	size = ipoib_read_words(pid, "cmdline", words);
	for (size_t at = 0; at < size && argc < 256; at += strlen(words + at) + 1)
		argv[argc++] = words + at;
	host = ipoib_option(argc, argv, "--host");
	name = ipoib_option(argc, argv, "--name");
	if (host == NULL)
		return false;
	out->pid = pid;
	snprintf(out->host, sizeof(out->host), "%s", host);
	snprintf(out->name, sizeof(out->name), "%s", name != NULL ? name : "ib0");
	text_clean(out->host, sizeof(out->host));
	text_clean(out->name, sizeof(out->name));
	return true;
}

/* Calls `fn` for each that is meant; returns how many. */
static int ipoib_each(const struct ipoib_choice *choice, void (*fn)(const struct ipoib_program *p))
{
	DIR *proc = opendir("/proc");
	struct ipoib_program p;
	struct dirent *e;
	int count = 0;

	while (proc != NULL && (e = readdir(proc)) != NULL) {
		int pid = atoi(e->d_name);

		if (pid <= 0 || !ipoib_read(pid, &p) ||
		    (choice->host != NULL && strcmp(choice->host, p.host) != 0) ||
		    (choice->name != NULL && strcmp(choice->name, p.name) != 0))
			continue;
		fn(&p);
		count++;
	}
	if (proc != NULL)
		closedir(proc);
	return count;
}

/* ---- down ------------------------------------------------------------------------------------ */

/* Those that are to end, as descriptors: /proc forgets a program's words before its descriptors are
 * closed, and until then the node counts it. */
static struct {
	struct pollfd fds[IPOIB_ENDS];
	nfds_t count;
} ipoib_ends;

static void ipoib_end(const struct ipoib_program *p)
{
	int fd = ipoib_ends.count < IPOIB_ENDS ? (int)syscall(SYS_pidfd_open, p->pid, 0) : -1;

	if (fd >= 0)
		ipoib_ends.fds[ipoib_ends.count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
	(void)kill(p->pid, SIGTERM);
}

static bool ipoib_have_ended(void)
{
	return poll(ipoib_ends.fds, ipoib_ends.count, 0) == (int)ipoib_ends.count;
}

static void ipoib_kill(const struct ipoib_program *p)
{
	(void)kill(p->pid, SIGKILL);
}

static void ipoib_nothing(const struct ipoib_program *p)
{
	(void)p;
}

/* Until none is there, `seconds` at most. */
static bool ipoib_wait_end(const struct ipoib_choice *choice, u32 seconds)
{
	const struct timespec pause = { .tv_nsec = IPOIB_WAIT_NS };
	u64 deadline = clock_now_ns() + seconds * NS_PER_S;

	while (ipoib_each(choice, ipoib_nothing) > 0 || !ipoib_have_ended()) {
		if (clock_now_ns() >= deadline)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return true;
}

/* A program that is stopped (SIGSTOP) hears of no signal but SIGKILL, which leaves nothing, either:
 * the node leaves its groups. */
static int ipoib_down(const struct ipoib_choice *choice)
{
	if (choice->host == NULL)
		return command_fail(EXIT_USAGE, "ipoib: down expects --host HOST");
	if (ipoib_each(choice, ipoib_end) == 0)
		return command_fail(EXIT_FAILED, "ipoib: host %s has no such interface",
				    choice->host);
	if (ipoib_wait_end(choice, IPOIB_TERM_S))
		return EXIT_OK;
	(void)ipoib_each(choice, ipoib_kill);
	if (ipoib_wait_end(choice, IPOIB_KILL_S))
		return EXIT_OK;
	return command_fail(EXIT_FAILED, "ipoib: it does not end");
}

/* ---- status ---------------------------------------------------------------------------------- */

/* Enters a namespace of the program, if this process is not in it. */
static int ipoib_enter_one(int pid, const char *which, int type)
{
	char path[64], own[64];
	struct stat there, here;
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, which);
	snprintf(own, sizeof(own), "/proc/self/ns/%s", which);
	if (stat(path, &there) == 0 && stat(own, &here) == 0 && there.st_ino == here.st_ino)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = setns(fd, type) != 0 ? -errno : 0;
	close(fd);
	return err;
}

/* An ordinary user may enter what lies in a user namespace of his own. */
static int ipoib_enter(int pid)
{
	int err = ipoib_enter_one(pid, "user", CLONE_NEWUSER);

	return err == 0 ? ipoib_enter_one(pid, "net", CLONE_NEWNET) : err;
}

static int ipoib_bits(const struct sockaddr *mask)
{
	const u8 *at =
		mask->sa_family == AF_INET
			? (const u8 *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr
			: (const u8 *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
	int bits = 0;

	for (int i = 0; i < (mask->sa_family == AF_INET ? 4 : 16); i++)
		bits += __builtin_popcount(at[i]);
	return bits;
}

static void ipoib_show_addresses(const char *name)
{
	struct ifaddrs *all = NULL;
	char text[INET6_ADDRSTRLEN];

	if (getifaddrs(&all) != 0)
		return;
	for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
		const void *at;

		if (strcmp(a->ifa_name, name) != 0 || a->ifa_addr == NULL ||
		    a->ifa_netmask == NULL ||
		    (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
			continue;
		at = a->ifa_addr->sa_family == AF_INET
			     ? (const void *)&((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr
			     : &((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr;
		if (inet_ntop(a->ifa_addr->sa_family, at, text, sizeof(text)) != NULL)
			printf(" %s/%d", text, ipoib_bits(a->ifa_netmask));
	}
	freeifaddrs(all);
}

/* The kernel derives IFF_RUNNING from the carrier later, by up to a second. */
static bool ipoib_has_carrier(int fd, const char *name)
{
	struct ethtool_value value = { .cmd = ETHTOOL_GLINK };
	struct ifreq r = { .ifr_data = (void *)&value };

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	return ioctl(fd, SIOCETHTOOL, &r) == 0 && value.data != 0;
}

static void ipoib_show_inside(const struct ipoib_program *p)
{
	struct ifreq r = { .ifr_flags = 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const char *state = "gone";

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", p->name);
	if (fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &r) == 0)
		state = (r.ifr_flags & IFF_UP) == 0	 ? "DOWN"
			: ipoib_has_carrier(fd, p->name) ? "UP"
							 : "NO-CARRIER";
	printf("%-12s %-10s %-10s pid %d", p->host, p->name, state, p->pid);
	if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &r) == 0)
		printf(" mtu %d", r.ifr_mtu);
	ipoib_show_addresses(p->name);
	putchar('\n');
}

/* A child looks, for nobody leaves a namespace. */
static void ipoib_show(const struct ipoib_program *p)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		if (ipoib_enter(p->pid) == 0)
			ipoib_show_inside(p);
		else
			printf("%-12s %-10s %-10s pid %d\n", p->host, p->name, "?", p->pid);
		fflush(stdout);
		_exit(0);
	}
	if (child > 0)
		(void)waitpid(child, NULL, 0);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* --host HOST and --name IF. False: something else. */
static bool ipoib_choose(int argc, char **argv, struct ipoib_choice *out)
{
	*out = (struct ipoib_choice){ .host = NULL };
	for (int i = 0; i < argc; i += 2) {
		if (i + 1 < argc && strcmp(argv[i], "--host") == 0)
			out->host = argv[i + 1];
		else if (i + 1 < argc && strcmp(argv[i], "--name") == 0)
			out->name = argv[i + 1];
		else
			return false;
	}
	return true;
}

int command_ipoib(int argc, char **argv)
{
	struct ipoib_choice choice;

	if (argc > 0 && strcmp(argv[0], "up") == 0)
		return ipoib_up(argc - 1, argv + 1);
	if (argc == 0 || (strcmp(argv[0], "down") != 0 && strcmp(argv[0], "status") != 0))
		return command_fail(EXIT_USAGE, "ipoib: expects up, down or status");
	if (!ipoib_choose(argc - 1, argv + 1, &choice))
		return command_fail(EXIT_USAGE, "ipoib: %s expects --host HOST and --name IF only",
				    argv[0]);
	if (strcmp(argv[0], "down") == 0)
		return ipoib_down(&choice);
	(void)ipoib_each(&choice, ipoib_show);
	return EXIT_OK;
}
