/* filter.c: runs a program under a filter of system calls, as containers and CI runners have them.
 * usage: filter docker|docker-old|yama|no-ipv6 COMMAND...
 *   docker      what Docker's default profile refuses a container without capabilities
 *   docker-old  also ptrace, process_vm_readv and process_vm_writev, as before Linux 4.8, and
 *               faccessat2, which it does not know
 *   yama        what kernel.yama.ptrace_scope=1 refuses: to attach to processes that are no
 *               descendants
 *   no-ipv6     a kernel without IPv6: no such socket
 * In:    a program            Out: its exit status
 * Runs:  main; for yama a supervisor, which lives until no process has the filter any more
 * Locks: none
 *
 * Docker's profile names what is allowed, and answers EPERM to all else. With few exceptions that
 * is every system call but those below and those newer than the profile. Yama judges by the process
 * that is looked at, which a filter cannot. So the supervisor is asked about every call that may
 * attach, and it refuses those of another process unless that is a descendant or has called
 * prctl(PR_SET_PTRACER): open of /proc/PID/mem (EACCES), ptrace, process_vm_* and pidfd_getfd
 * (EPERM). Yama's scopes leave alone what only reads: the rest of /proc/PID, so that
 * /proc/PID/fd/N opens as without it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	RULES = 256,
	EXEMPT = 64, /* processes that let others in, at most */
	NEWEST = 451, /* the profile knows no call from here on */
	NAMESPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
		     CLONE_NEWPID | CLONE_NEWNET,
};

static struct sock_filter rules[RULES];
static unsigned short count;

static void rule(struct sock_filter r)
{
	if (count == RULES)
		abort();
	rules[count++] = r;
}

static void load(size_t offset)
{
	rule((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static void answer(unsigned value)
{
	rule((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value));
}

/* Asks the supervisor about prctl(PR_SET_PTRACER). */
static void ask_about_ptracer(void)
{
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3));
	load(offsetof(struct seccomp_data, args[0]));
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_PTRACER, 0, 1));
	answer(SECCOMP_RET_USER_NOTIF);
}

/* If the loaded word is `value`: the answer. */
static void if_equal(unsigned value, unsigned then)
{
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
	answer(then);
}

static void begin(void)
{
	load(offsetof(struct seccomp_data, arch));
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
	answer(SECCOMP_RET_ERRNO | EPERM);
	load(offsetof(struct seccomp_data, nr));
}

static void refuse(const int *calls, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if_equal((unsigned)calls[i], SECCOMP_RET_ERRNO | EPERM);
}

/* socket() of one family. */
static void refuse_family(unsigned family, unsigned error)
{
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4));
	load(offsetof(struct seccomp_data, args[0]));
	if_equal(family, SECCOMP_RET_ERRNO | error);
	load(offsetof(struct seccomp_data, nr));
}

/* clone() with a flag for a namespace. */
static void refuse_namespaces(void)
{
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
	load(offsetof(struct seccomp_data, args[0]));
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1));
	answer(SECCOMP_RET_ERRNO | EPERM);
	answer(SECCOMP_RET_ALLOW);
}

static const int docker[] = {
	SYS_acct, SYS_add_key, SYS_bpf, SYS_clock_settime, SYS_create_module, SYS_delete_module,
	SYS_fanotify_init, SYS_finit_module, SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_fspick,
	SYS_get_kernel_syms, SYS_get_mempolicy, SYS_init_module, SYS_io_uring_enter,
	SYS_io_uring_register, SYS_io_uring_setup, SYS_ioperm, SYS_iopl, SYS_kcmp,
	SYS_kexec_file_load, SYS_kexec_load, SYS_keyctl, SYS_lookup_dcookie, SYS_mbind, SYS_mount,
	SYS_mount_setattr, SYS_move_mount, SYS_move_pages, SYS_migrate_pages, SYS_nfsservctl,
	SYS_open_by_handle_at, SYS_open_tree, SYS_perf_event_open, SYS_pidfd_getfd, SYS_pivot_root,
	SYS_process_madvise, SYS_query_module, SYS_quotactl, SYS_reboot, SYS_request_key,
	SYS_set_mempolicy, SYS_setdomainname, SYS_sethostname, SYS_setns, SYS_settimeofday,
	SYS_swapoff, SYS_swapon, SYS_sysfs, SYS__sysctl, SYS_umount2, SYS_unshare, SYS_uselib,
	SYS_userfaultfd, SYS_ustat, SYS_vhangup,
};

static const int old[] = { SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
			   SYS_faccessat2 };
static const int yama[] = { SYS_ptrace,	     SYS_process_vm_readv, SYS_process_vm_writev,
			    SYS_pidfd_getfd, SYS_openat,	   SYS_open };

static bool compose(const char *name)
{
	begin();
	if (strcmp(name, "yama") == 0) {
		for (size_t i = 0; i < sizeof(yama) / sizeof(yama[0]); i++)
			if_equal((unsigned)yama[i], SECCOMP_RET_USER_NOTIF);
		ask_about_ptracer();
		answer(SECCOMP_RET_ALLOW);
		return true;
	}
	if (strcmp(name, "no-ipv6") == 0) {
		refuse_family(AF_INET6, EAFNOSUPPORT);
		answer(SECCOMP_RET_ALLOW);
		return true;
	}
	if (strcmp(name, "docker-old") == 0)
		refuse(old, sizeof(old) / sizeof(old[0]));
	else if (strcmp(name, "docker") != 0)
		return false;
	refuse(docker, sizeof(docker) / sizeof(docker[0]));
	if_equal(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
	refuse_namespaces();
	refuse_family(AF_VSOCK, EPERM);
	rule((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, NEWEST, 0, 1));
	answer(SECCOMP_RET_ERRNO | EPERM);
	answer(SECCOMP_RET_ALLOW);
	return true;
}

static int exempt[EXEMPT], exempt_count;

/* The number behind `name` in a file of /proc, or `other`. */
static int number_in(const char *path, const char *name, int other)
{
	char line[128];
	size_t n = strlen(name);
	FILE *f = fopen(path, "re");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, name, n) == 0) {
			other = atoi(line + n);
			break;
		}
	if (f != NULL)
		fclose(f);
	return other;
}

static int number_of(int thread, const char *name, int other)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", thread);
	return number_in(path, name, other);
}

/* The process of a thread. */
static int process_of(int thread)
{
	return number_of(thread, "Tgid:", thread);
}

static bool is_exempt(int process)
{
	for (int i = 0; i < exempt_count; i++)
		if (exempt[i] == process)
			return true;
	return false;
}

/* The text at this address of the process, which may end near the end of its page. */
static void read_text(int process, unsigned long at, char *out, size_t size)
{
	char file[64];
	ssize_t got = -1;
	int fd;

	memset(out, 0, size);
	snprintf(file, sizeof(file), "/proc/%d/mem", process);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	for (size_t k = size - 1; fd >= 0 && got < 0 && k > 8; k /= 2)
		got = pread(fd, out, k, (off_t)at);
	if (fd >= 0)
		close(fd);
}

/* The process whose memory an open() asks for; 0: it asks for something else. */
static int memory_asked_for(const struct seccomp_notif *n)
{
	unsigned long at = n->data.nr == SYS_open ? n->data.args[0] : n->data.args[1];
	int pid, end = 0;
	char path[64];

	read_text((int)n->pid, at, path, sizeof(path));
	return sscanf(path, "/proc/%d/mem%n", &pid, &end) == 1 && end > 0 && path[end] == '\0' ? pid
											       : 0;
}

/* The process that a call attaches to; 0: none. */
static int target_of(const struct seccomp_notif *n)
{
	char path[64];

	switch (n->data.nr) {
	case SYS_open:
	case SYS_openat:
		return memory_asked_for(n);
	case SYS_pidfd_getfd:
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)n->pid,
			 (int)n->data.args[0]);
		return number_in(path, "Pid:", 0);
	case SYS_ptrace:
		return (int)n->data.args[1];
	default:
		return (int)n->data.args[0];
	}
}

static bool is_ancestor(int process, int of)
{
	while (of > 1 && of != process)
		of = number_of(of, "PPid:", 0);
	return of == process;
}

static bool may_attach(int process, int target)
{
	return target <= 0 || is_ancestor(process, process_of(target)) ||
	       is_exempt(process_of(target));
}

static void judge(const struct seccomp_notif *n, struct seccomp_notif_resp *r)
{
	r->id = n->id;
	if (n->data.nr == SYS_prctl) {
		if (exempt_count < EXEMPT)
			exempt[exempt_count++] = process_of((int)n->pid);
		return;
	}
	if (may_attach(process_of((int)n->pid), target_of(n)))
		r->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else
		r->error = n->data.nr == SYS_open || n->data.nr == SYS_openat ? -EACCES : -EPERM;
}

static void supervise(int listener)
{
	struct pollfd p = { listener, POLLIN, 0 };

	while (poll(&p, 1, -1) >= 0 || errno == EINTR) {
		struct seccomp_notif n = { 0 };
		struct seccomp_notif_resp r = { 0 };

		if ((p.revents & POLLHUP) != 0 && (p.revents & POLLIN) == 0)
			_exit(0);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) != 0)
			continue;
		judge(&n, &r);
		(void)!ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
	}
	_exit(1);
}

/* The listener's number, or 0 where none is asked for. */
static int install(bool notify)
{
	struct sock_fprog program = { count, rules };
	unsigned flags = notify ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* The supervisor takes the listener out of this process, which has the filter. It must not wait for
 * itself, so it is forked before. */
static pid_t fork_supervisor(int *talk)
{
	pid_t self = getpid(), child;
	int ends[2], number = -1, fd;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return -1;
	child = fork();
	if (child != 0) {
		close(ends[1]);
		*talk = ends[0];
		return child;
	}
	close(ends[0]);
	setsid();
	if (read(ends[1], &number, sizeof(number)) != sizeof(number))
		_exit(1);
	fd = (int)syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, self, 0), number, 0);
	if (fd < 0 || write(ends[1], &number, sizeof(number)) < 0)
		_exit(1);
	close(ends[1]);
	/* so that nobody waits for an end of the output that it has inherited */
	for (int i = 0; i < 3; i++)
		dup2(open("/dev/null", O_RDWR | O_CLOEXEC), i);
	supervise(fd);
	return 0;
}

/* Returns when the supervisor has the listener. */
static bool hand_over(int talk, int listener)
{
	bool done = write(talk, &listener, sizeof(listener)) == sizeof(listener) &&
		    read(talk, &listener, sizeof(listener)) == sizeof(listener);

	close(talk);
	fcntl(listener, F_SETFD, FD_CLOEXEC);
	return done;
}

int main(int argc, char **argv)
{
	bool notify = argc > 1 && strcmp(argv[1], "yama") == 0;
	int talk = -1, listener;

	if (argc < 3 || !compose(argv[1])) {
		fprintf(stderr, "usage: filter docker|docker-old|yama|no-ipv6 COMMAND...\n");
		return 2;
	}
	if (notify && fork_supervisor(&talk) < 0)
		return 4;
	listener = install(notify);
	if (listener < 0 || (notify && !hand_over(talk, listener))) {
		perror("filter");
		return 4;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 4;
}
