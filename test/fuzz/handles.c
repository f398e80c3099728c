/* handles.c: descriptors of every kind that somebody may send.
 * In: a kind    Out: a descriptor    Runs: the fuzzer's thread    Locks: none
 */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "input.h"
#include "node/directory.h"

static int handles[HANDLE_KINDS];

static int handles_notice(void)
{
	int fd = -1, err;

	directory_unmap(directory_create(&fd, &err));
	return fd;
}

/* A memory file; with seals it may not shrink. */
static int handles_memory(off_t size, bool sealed)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	fuzz_need(fd >= 0 && ftruncate(fd, size) == 0, "no memory file");
	if (sealed)
		fuzz_need(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "no seals");
	return fd;
}

void handles_open(void)
{
	int ends[2], pipes[2];

	fuzz_need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "no pair");
	fuzz_need(pipe2(pipes, O_CLOEXEC) == 0, "no pipe");
	close(pipes[1]);
	handles[0] = handles_notice();
	handles[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	handles[2] = handles_memory(4096, false);
	handles[3] = handles_memory(sizeof(struct directory), true);
	handles[4] = handles_memory(0, true);
	handles[5] = ends[0];
	handles[6] = pipes[0];
	handles[7] = open("/dev/null", O_RDWR | O_CLOEXEC);
	handles[8] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	handles[9] = open("/", O_PATH | O_CLOEXEC);
}

int handle_make(u8 kind, const int *extra, int extras)
{
	int i = kind % (HANDLE_KINDS + extras);
	int fd = fcntl(i < HANDLE_KINDS ? handles[i] : extra[i - HANDLE_KINDS], F_DUPFD_CLOEXEC, 0);

	fuzz_need(fd >= 0, "no descriptor");
	return fd;
}

int handle_lowest(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}
