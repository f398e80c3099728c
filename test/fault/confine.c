/* confine.c: runs a program that may not reach other processes' memory, or descriptors.
 * usage: confine [--getfd] ERRNO COMMAND...
 * In: an error number
 * Out: preadv and pwritev, which copy to and from /proc/PID/mem (pidfd_getfd),
 *     fail with it, in COMMAND and its children
 * Runs: main             Locks: none
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

int main(int argc, char **argv)
{
	int getfd = argc > 1 && strcmp(argv[1], "--getfd") == 0;
	unsigned int error = argc > 2 + getfd ? (unsigned int)atoi(argv[1 + getfd]) : EPERM;
	unsigned int first = getfd ? SYS_pidfd_getfd : SYS_preadv;
	unsigned int second = getfd ? SYS_pidfd_getfd : SYS_pwritev;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (argc < 3 + getfd || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		perror("confine");
		return 4;
	}
	execvp(argv[2 + getfd], argv + 2 + getfd);
	perror(argv[2 + getfd]);
	return 4;
}
