/* habits_kit.c: what the careless programs share.
 * In: calls of habits.c and habits_ends.c    Out: lines, sockets    Runs: any thread
 */
#include "habits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct sockaddr_in address;

/* ---- saying ---- */

const char *result(long n)
{
	static char text[4][64];
	static int next;
	char *t = text[next++ % 4];

	if (n >= 0)
		snprintf(t, sizeof(text[0]), "%ld", n);
	else
		snprintf(t, sizeof(text[0]), "%s", strerrorname_np(errno));
	return t;
}

void say(const char *what, long n)
{
	printf("%s: %s\n", what, result(n));
}

/* A stream that has failed: programs must live with either. */
const char *end_of(long n)
{
	if (n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE)))
		return "the end";
	return result(n);
}

void nap(int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* ---- the usual beginnings ---- */

int server_socket(int backlog)
{
	int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	socklen_t size = sizeof(address);

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address.sin_family == 0) {
		address.sin_family = AF_INET;
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	if (bind(s, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(s, backlog) < 0)
		perror("bind, listen");
	getsockname(s, (struct sockaddr *)&address, &size);
	return s;
}

/* With HABITS_RDMA in the environment: says so if TCP has a connection of the port. One in
 * TIME_WAIT (06) may be an earlier program's; a listener (0A) is none. */
static void look_for_tcp(void)
{
	static const char *const tables[] = { "/proc/self/net/tcp", "/proc/self/net/tcp6" };
	char line[300], wanted[8];

	snprintf(wanted, sizeof(wanted), ":%04X", ntohs(address.sin_port));
	for (int i = 0; i < 2 && getenv("HABITS_RDMA"); i++) {
		FILE *table = fopen(tables[i], "r");

		while (table && fgets(line, sizeof(line), table))
			if (strstr(line, wanted) && !strstr(line, " 0A ") && !strstr(line, " 06 "))
				printf("TCP has it: %s", line);
		if (table)
			fclose(table);
	}
}

int client_socket(void)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(s, (struct sockaddr *)&address, sizeof(address)) < 0)
		perror("connect");
	look_for_tcp();
	return s;
}

void make_pair(int fds[2])
{
	int listener = server_socket(5);

	fds[0] = client_socket();
	fds[1] = accept(listener, NULL, NULL);
	close(listener);
}

long read_all(int fd, unsigned char *buf, long size)
{
	long done = 0, n = 1;

	while (done < size && n > 0) {
		n = read(fd, buf + done, (size_t)(size - done));
		done += n > 0 ? n : 0;
	}
	return n < 0 ? n : done;
}

long write_all(int fd, const unsigned char *buf, long size)
{
	long done = 0, n = 1;

	while (done < size && n > 0) {
		n = write(fd, buf + done, (size_t)(size - done));
		done += n > 0 ? n : 0;
	}
	return n < 0 ? n : done;
}

unsigned sum(const unsigned char *buf, long size)
{
	unsigned s = 1;

	for (long i = 0; i < size; i++)
		s = s * 31 + buf[i];
	return s;
}

unsigned char *pattern(long size)
{
	unsigned char *buf = malloc((size_t)size);

	for (long i = 0; i < size; i++)
		buf[i] = (unsigned char)(i * 7 + (i >> 8));
	return buf;
}
