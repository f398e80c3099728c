/* heir.c: a program that comes after another one: by exec, or with its process number.
 * usage: heir ADDRESS BYTES MS             "heir PID", and after MS milliseconds "foreign COUNT"
 *        heir --number N ADDRESS BYTES MS  the same, from a process with number N
 *
 * In: memory of its own, zeroes, where the other one had registered some    Out: what is not zero
 * Runs: main             Locks: none
 */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int heir_die(const char *what)
{
	printf("error %s: %s\n", what, strerror(errno));
	return 3;
}

static int heir_watch(char **argv)
{
	size_t bytes = strtoul(argv[1], NULL, 0), foreign = 0;
	uint8_t *p = mmap((void *)strtoul(argv[0], NULL, 0), bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		return heir_die("memory");
	printf("heir %d\n", (int)getpid());
	fflush(stdout);
	usleep((useconds_t)atoi(argv[2]) * 1000);
	for (size_t i = 0; i < bytes; i++)
		foreign += ((volatile uint8_t *)p)[i] != 0;
	printf("foreign %zu\n", foreign);
	return 0;
}

static int heir_with_number(pid_t number, char **argv)
{
	struct clone_args args = { .exit_signal = SIGCHLD,
				   .set_tid = (uint64_t)(uintptr_t)&number,
				   .set_tid_size = 1 };
	long child = syscall(SYS_clone3, &args, sizeof(args));

	if (child < 0)
		return heir_die("clone3");
	if (child == 0)
		return heir_watch(argv);
	return waitpid((pid_t)child, NULL, 0) == child ? 0 : heir_die("waitpid");
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "--number") == 0)
		return heir_with_number((pid_t)atoi(argv[2]), argv + 3);
	if (argc == 4)
		return heir_watch(argv + 1);
	fprintf(stderr, "usage: heir [--number N] ADDRESS BYTES MS\n");
	return 2;
}
