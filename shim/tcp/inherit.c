/* inherit.c: the addresses of a connection whose descriptor came by exec or SCM_RIGHTS.
 * In: the pair of a connection    Out: a name of its far end; the sock that the name describes
 * Runs: any thread    Locks: none
 *
 * The program's end of the pair has no name, the far end has one that says both addresses. The
 * kernel answers getpeername with it wherever the program's end is open. So a program that another
 * one executes (sshd's, inetd's) sees a TCP connection, if it has the shim.
 *
 * The name is text in the abstract space, for /proc/net/unix has a line for each:
 *
 *   anyverbs-tcp, 4 or 6, process, scope, then for either end an IPv6 address and a port
 *
 * all in hexadecimal digits. The process keeps names of two nodes with one address apart. Only a
 * pair that this user or root has made counts.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "rsockets.h"

NEXT_SLOT(bind);
NEXT_SLOT(getpeername);
NEXT_SLOT(getsockname);
NEXT_SLOT(getsockopt);

#define INHERIT_MARK "anyverbs-tcp"

enum {
	INHERIT_NUMBER = 8,		    /* digits of the process and of the scope */
	INHERIT_END = 32 + 4,		    /* those of an address and a port */
	INHERIT_HEAD = sizeof(INHERIT_MARK), /* with the 4 or 6 in place of the terminator */
	INHERIT_TEXT = INHERIT_HEAD + 2 * INHERIT_NUMBER + 2 * INHERIT_END,
};

/* Either family as IPv6's. False: none of the two. */
static bool inherit_as_six(const struct address *a, struct sockaddr_in6 *six)
{
	const struct sockaddr_in *four = (const void *)&a->store;

	memcpy(six, &a->store, sizeof(*six));
	if (a->size >= sizeof(*six) && six->sin6_family == AF_INET6)
		return true;
	if (a->size < sizeof(*four) || four->sin_family != AF_INET)
		return false;
	memset(six, 0, sizeof(*six));
	six->sin6_port = four->sin_port;
	six->sin6_addr.s6_addr[10] = six->sin6_addr.s6_addr[11] = 0xff;
	memcpy(six->sin6_addr.s6_addr + 12, &four->sin_addr, 4);
	return true;
}

enum { INHERIT_DIGITS = 2 * 16 + 4 }; /* of an address and its port */

static void inherit_print(char out[INHERIT_DIGITS + 1], const struct sockaddr_in6 *six)
{
	for (int i = 0; i < 16; i++)
		snprintf(out + 2 * i, 3, "%02x", six->sin6_addr.s6_addr[i]);
	snprintf(out + 2 * 16, 5, "%04x", ntohs(six->sin6_port));
}

void inherit_name(int far, const struct sock *s)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct sockaddr_in6 local, peer;
	char here[INHERIT_DIGITS + 1], there[INHERIT_DIGITS + 1];
	int n;

	if (!inherit_as_six(&s->local, &local) || !inherit_as_six(&s->peer, &peer))
		return;
	inherit_print(here, &local);
	inherit_print(there, &peer);
	n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, INHERIT_MARK "%c%08x%08x%s%s",
		     s->domain == AF_INET6 ? '6' : '4', (unsigned)getpid(), peer.sin6_scope_id,
		     here, there);
	/* without a name the addresses are not known there, and that is all */
	(void)NEXT(bind)(far, (void *)&name,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
}

/* So many hexadecimal digits. False: others are among them. */
static bool inherit_number(const char *at, int digits, u32 *out)
{
	char text[INHERIT_NUMBER + 1] = { 0 };

	memcpy(text, at, (size_t)digits);
	*out = (u32)strtoul(text, NULL, 16);
	return strspn(text, "0123456789abcdef") == (size_t)digits;
}

static bool inherit_read(const char *at, int domain, u32 scope, struct address *out)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_scope_id = scope };
	struct sockaddr_in four = { .sin_family = AF_INET };
	u32 n;

	for (int i = 0; i < 16; i++) {
		if (!inherit_number(at + 2 * i, 2, &n))
			return false;
		six.sin6_addr.s6_addr[i] = (u8)n;
	}
	if (!inherit_number(at + 32, 4, &n))
		return false;
	six.sin6_port = four.sin_port = htons((u16)n);
	memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, 4);
	out->size = domain == AF_INET6 ? sizeof(six) : sizeof(four);
	memcpy(&out->store, domain == AF_INET6 ? (void *)&six : (void *)&four, out->size);
	return true;
}

/* Any user may give a socket such a name and connect to a Unix socket of the program's. But an end
 * that comes from there has the listener's name, and an end of a stranger's pair says whose it is.
 * A pair of root's may have come to another user: inetd's servers run as their own. */
static bool inherit_is_trusted(int fd)
{
	struct ucred maker = { .uid = (uid_t)-1 };
	struct sockaddr_un own;
	socklen_t size = sizeof(own), room = sizeof(maker);

	return NEXT(getsockname)(fd, (void *)&own, &size) == 0 &&
	       size == offsetof(struct sockaddr_un, sun_path) &&
	       NEXT(getsockopt)(fd, SOL_SOCKET, SO_PEERCRED, &maker, &room) == 0 &&
	       (maker.uid == geteuid() || maker.uid == 0);
}

/* False: the name is none of inherit_name's. */
static bool inherit_parse(const char *text, int *domain, struct address *local,
			  struct address *peer)
{
	const char *number = text + INHERIT_HEAD, *ends = number + 2 * INHERIT_NUMBER;
	u32 scope;

	if (memcmp(text, INHERIT_MARK, INHERIT_HEAD - 1) != 0)
		return false;
	*domain = text[INHERIT_HEAD - 1] == '6' ? AF_INET6 : AF_INET;
	return inherit_number(number + INHERIT_NUMBER, INHERIT_NUMBER, &scope) &&
	       inherit_read(ends, *domain, scope, local) &&
	       inherit_read(ends + INHERIT_END, *domain, scope, peer);
}

struct sock *inherit_get(int fd)
{
	struct address local = { .size = 0 }, peer = { .size = 0 };
	struct sockaddr_un name;
	socklen_t size = sizeof(name);
	int saved = errno, domain;
	struct sock *s = NULL;

	if (NEXT(getpeername)(fd, (void *)&name, &size) == 0 && name.sun_family == AF_UNIX &&
	    size == offsetof(struct sockaddr_un, sun_path) + 1 + INHERIT_TEXT &&
	    name.sun_path[0] == 0 && inherit_is_trusted(fd) &&
	    inherit_parse(name.sun_path + 1, &domain, &local, &peer))
		s = sock_new(SOCK_KERNEL, domain);
	if (s != NULL) {
		s->local = local;
		s->peer = peer;
	}
	errno = saved;
	return s;
}
