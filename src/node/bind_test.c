/* bind_test.c: ports of the RDMA CM are granted as sockets grant theirs, within a process and among
 * the processes that have descriptions of one file.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/bind.h"

static int file;

static int open_file(void **state)
{
	file = memfd_create("bind-test", MFD_CLOEXEC);
	bind_use(file);
	return file < 0 ? -1 : 0;
}

static int close_file(void **state)
{
	bind_use(-1);
	close(file);
	return 0;
}

/* As an address of IPv4 or IPv6, with flags `r` (shared) and `6` (v6only) behind it. */
static int take(struct node_port *p, u16 port, const char *address, const char *flags)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct node_port_want want = { .space = NODE_PORT_TCP,
				       .port = port,
				       .v6only = strchr(flags, '6') != NULL,
				       .shared = strchr(flags, 'r') != NULL };

	want.addr = (const struct sockaddr *)&sin;
	if (inet_pton(AF_INET, address, &sin.sin_addr) != 1) {
		assert_int_equal(inet_pton(AF_INET6, address, &sin6.sin6_addr), 1);
		want.addr = (const struct sockaddr *)&sin6;
	}
	memset(p, 0, sizeof(*p));
	return node_port_take(p, &want);
}

/* What another process, with a description of its own, is told. */
static int take_elsewhere(u16 port, const char *address, const char *flags)
{
	struct node_port p;
	char path[64];
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int fd;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
		fd = open(path, O_RDWR | O_CLOEXEC);
		bind_use(fd);
		_exit(-take(&p, port, address, flags));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

struct rule {
	const char *first, *first_flags, *second, *second_flags;
	int error;
};

/* Who may have port 7000 as second, in the same process as in another one. */
static const struct rule rules[] = {
	{ "10.0.0.1", "", "10.0.0.1", "", EADDRINUSE },
	{ "10.0.0.1", "", "10.0.0.2", "", 0 },
	{ "0.0.0.0", "", "10.0.0.2", "", EADDRINUSE },
	{ "10.0.0.2", "", "0.0.0.0", "", EADDRINUSE },
	{ "::", "", "10.0.0.2", "", EADDRINUSE },
	{ "::", "6", "10.0.0.2", "", 0 },
	{ "0.0.0.0", "", "::", "6", 0 },
	{ "0.0.0.0", "", "::", "", EADDRINUSE },
	{ "::", "6", "fd00::1", "", EADDRINUSE },
	{ "fd00::1", "", "fd00::2", "", 0 },
	{ "::ffff:10.0.0.1", "", "10.0.0.1", "", EADDRINUSE },
	{ "10.0.0.1", "r", "10.0.0.1", "r", 0 },
	{ "10.0.0.1", "r", "0.0.0.0", "r", 0 },
	{ "10.0.0.1", "r", "10.0.0.1", "", EADDRINUSE },
	{ "10.0.0.1", "", "10.0.0.1", "r", EADDRINUSE },
};

static void node_port_take__follows_the_rule_of_sockets(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		const struct rule *r = &rules[i];
		struct node_port a, b;

		assert_int_equal(take(&a, 7000, r->first, r->first_flags), 0);
		assert_int_equal(take(&b, 7000, r->second, r->second_flags), -r->error);
		node_port_give(&b);
		assert_int_equal(take_elsewhere(7000, r->second, r->second_flags), -r->error);
		node_port_give(&a);
		assert_int_equal(take_elsewhere(7000, r->second, r->second_flags), 0);
	}
}

/* What is given back stays locked where another id of this process has it. */
static void node_port_give__leaves_what_others_share(void **state)
{
	struct node_port wide, narrow;

	assert_int_equal(take(&narrow, 7000, "10.0.0.1", "r"), 0);
	assert_int_equal(take(&wide, 7000, "0.0.0.0", "r"), 0);
	node_port_give(&wide);
	assert_int_equal(take_elsewhere(7000, "10.0.0.1", ""), -EADDRINUSE);
	assert_int_equal(take_elsewhere(7000, "10.0.0.2", ""), 0);
	node_port_give(&narrow);
	assert_int_equal(take_elsewhere(7000, "10.0.0.1", ""), 0);
}

static void node_port_own__needs_the_port_alone(void **state)
{
	struct node_port a, b;

	assert_int_equal(take(&a, 7000, "10.0.0.1", "r"), 0);
	assert_int_equal(take(&b, 7000, "10.0.0.1", "r"), 0);
	assert_int_equal(node_port_own(&a), -EADDRINUSE);
	node_port_give(&b);
	assert_int_equal(node_port_own(&a), 0);
	assert_int_equal(take_elsewhere(7000, "10.0.0.1", "r"), -EADDRINUSE);
	node_port_give(&a);
}

/* Any free port is one from the range, and nobody else's. */
static void node_port_take__finds_a_free_port(void **state)
{
	struct node_port ports[64];

	for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
		assert_int_equal(take(&ports[i], 0, "0.0.0.0", i % 2 ? "r" : ""), 0);
		assert_in_range(ports[i].port, 32768, 60999);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(ports[i].port, ports[j].port);
		assert_int_equal(take_elsewhere(ports[i].port, "10.0.0.1", ""), -EADDRINUSE);
	}
	for (size_t i = 0; i < ARRAY_LEN(ports); i++)
		node_port_give(&ports[i]);
}

/* Locks of this file: the kernel walks all of them for each new one. */
static u32 count_locks(void)
{
	char line[256], inode[64];
	struct stat st;
	u32 count = 0;
	FILE *f = fopen("/proc/locks", "re");

	assert_non_null(f);
	assert_int_equal(fstat(file, &st), 0);
	snprintf(inode, sizeof(inode), " %02x:%02x:%llu ", major(st.st_dev), minor(st.st_dev),
		 (unsigned long long)st.st_ino);
	while (fgets(line, sizeof(line), f) != NULL)
		count += strstr(line, inode) != NULL;
	fclose(f);
	return count;
}

enum { MANY = 3000 };

/* A process with many ports locks whole blocks: few locks, and still nobody else gets a port. */
static void node_port_take__locks_blocks_for_many(void **state)
{
	static struct node_port ports[MANY];
	static bool taken[1 << 16];
	struct node_port inside;

	for (int i = 0; i < MANY; i++) {
		assert_int_equal(take(&ports[i], 0, i % 2 == 0 ? "0.0.0.0" : "10.0.0.1", ""), 0);
		assert_false(taken[ports[i].port]);
		taken[ports[i].port] = true;
	}
	assert_in_range(count_locks(), 256, 256 + MANY / 64 + 1);
	for (int i = 0; i < MANY; i += 99)
		assert_int_equal(take_elsewhere(ports[i].port, "10.0.0.1", ""), -EADDRINUSE);
	/* the rules hold inside a block of one's own */
	assert_int_equal(take(&inside, ports[MANY - 1].port, "10.0.0.1", ""), -EADDRINUSE);
	assert_int_equal(take(&inside, ports[MANY - 1].port, "10.0.0.2", "r"), 0);
	node_port_give(&inside);
	assert_int_equal(take_elsewhere(ports[MANY - 1].port, "10.0.0.1", ""), -EADDRINUSE);
	for (int i = 0; i < MANY; i++)
		node_port_give(&ports[i]);
	/* the block out of which ports are given stays */
	assert_in_range(count_locks(), 0, 1);
	assert_int_equal(take_elsewhere(ports[0].port, "0.0.0.0", ""), 0);
}

/* A node that has lost its folder has another file: the ports are taken there, too. */
static void bind_set_host__each_has_its_own_ports(void **state)
{
	struct node_port mine, other, address;

	bind_set_host(1);
	assert_int_equal(take(&mine, 7471, "0.0.0.0", ""), 0);
	assert_int_equal(take_elsewhere(7471, "127.64.0.1", ""), -EADDRINUSE);
	bind_set_host(2);
	assert_int_equal(take_elsewhere(7471, "::", ""), 0);
	assert_int_equal(take(&other, 7471, "::", ""), 0);
	assert_int_equal(take(&address, 7471, "127.64.0.2", ""), -EADDRINUSE);
	bind_set_host(0);
	assert_int_equal(take_elsewhere(7471, "::", ""), 0);
	bind_set_host(UINT16_MAX);
	assert_int_equal(take_elsewhere(7471, "::", ""), 0);
	bind_set_host(0);
	node_port_give(&mine);
	node_port_give(&other);
}

static void bind_use__takes_the_ports_in_the_new_file(void **state)
{
	struct node_port p;

	assert_int_equal(take(&p, 7000, "10.0.0.1", ""), 0);
	assert_int_equal(close_file(state), 0);
	assert_int_equal(open_file(state), 0);
	assert_int_equal(take_elsewhere(7000, "10.0.0.1", ""), -EADDRINUSE);
	node_port_give(&p);
}

/* A process that dies leaves its ports free, whatever it held. */
static void node_port_take__ends_with_its_process(void **state)
{
	assert_int_equal(take_elsewhere(7000, "0.0.0.0", ""), 0);
	assert_int_equal(take_elsewhere(7000, "0.0.0.0", ""), 0);
}

/* The number of bind's own descriptor of the file. */
static int own_descriptor(void)
{
	struct stat wanted, st;

	assert_int_equal(fstat(file, &wanted), 0);
	for (int fd = 3; fd < 1024; fd++)
		if (fd != file && fstat(fd, &st) == 0 && st.st_dev == wanted.st_dev &&
		    st.st_ino == wanted.st_ino)
			return fd;
	fail_msg("no descriptor");
	return -1;
}

/* The application closes it, and has another file at its number: nothing is locked there, and the
 * file stays open. */
static void node_port_take__locks_no_other_file(void **state)
{
	int fd = own_descriptor(), other = memfd_create("other", MFD_CLOEXEC);
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct node_port p;
	char path[64];

	assert_int_equal(dup2(other, fd), fd);
	assert_int_equal(take(&p, 7000, "1.2.3.4", ""), -EBADF);
	close(other);
	/* by a description of its own, which would meet the lock */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fcntl(other, F_OFD_GETLK, &all), 0);
	assert_int_equal(all.l_type, F_UNLCK);
	bind_use(-1);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(other);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_port_take__follows_the_rule_of_sockets),
		cmocka_unit_test(node_port_give__leaves_what_others_share),
		cmocka_unit_test(node_port_own__needs_the_port_alone),
		cmocka_unit_test(node_port_take__finds_a_free_port),
		cmocka_unit_test(node_port_take__locks_blocks_for_many),
		cmocka_unit_test(bind_set_host__each_has_its_own_ports),
		cmocka_unit_test(bind_use__takes_the_ports_in_the_new_file),
		cmocka_unit_test(node_port_take__ends_with_its_process),
		/* the last: the file is gone */
		cmocka_unit_test(node_port_take__locks_no_other_file),
	};

	return cmocka_run_group_tests(tests, open_file, close_file);
}
