/* address.c: the node's name and its abstract socket.
 * In:    ANYVERBS_NODE, the user, /proc/self/ns      Out: an address; whether a peer is the same
 * user's
 * Runs:  any thread                                  Locks: none
 */
#include "node/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/fd.h"

enum { ADDRESS_DEVICE_DIGITS = 4 };

/* The kernel's number for the user namespace that all others come from */
#define ADDRESS_FIRST_USER_NS 0xEFFFFFFDu

#define ADDRESS_OVERFLOW_UID 65534u

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

bool address_name_valid(const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t length = strlen(name);

	/* no leading dot: the name is a folder's, too */
	return length > 0 && length < NODE_NAME_MAX && name[0] != '.' &&
	       strspn(name, allowed) == length;
}

int address_node_name(char name[NODE_NAME_MAX])
{
	const char *wanted = getenv("ANYVERBS_NODE");

	if (wanted == NULL || wanted[0] == '\0')
		wanted = "default";
	if (!address_name_valid(wanted)) {
		env_refuse("ANYVERBS_NODE", wanted,
			   "a name of at most 31 letters, digits, dots, underscores and hyphens");
		return -EINVAL;
	}
	snprintf(name, NODE_NAME_MAX, "%s", wanted);
	return 0;
}

bool address_device_valid(const char *name)
{
	size_t digits;

	if (strncmp(name, "roce", 4) != 0)
		return false;
	digits = strspn(name + 4, "0123456789");
	return digits >= 1 && digits <= ADDRESS_DEVICE_DIGITS && name[4 + digits] == '\0' &&
	       (name[4] != '0' || digits == 1);
}

u32 address_devices(const char *text, char names[NODE_DEVICES][NODE_DEVICE_NAME],
		    void (*refuse)(const char *name))
{
	char *copy = strdup(text != NULL ? text : ""), *save = NULL;
	u32 count = 1;

	memset(names, 0, NODE_DEVICES * sizeof(names[0]));
	snprintf(names[0], sizeof(names[0]), "roce0");
	for (char *word = copy != NULL ? strtok_r(copy, ", ", &save) : NULL; word != NULL;
	     word = strtok_r(NULL, ", ", &save)) {
		u32 i = 0;

		while (i < count && strcmp(names[i], word) != 0)
			i++;
		if (i < count)
			continue;
		if (count == NODE_DEVICES || !address_device_valid(word))
			refuse(word);
		else
			snprintf(names[count++], sizeof(names[0]), "%s", word);
	}
	free(copy);
	return count;
}

socklen_t address_make(const char *name, u32 index, struct sockaddr_un *out)
{
	char number[16] = "";
	int n;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	if (index > 0)
		snprintf(number, sizeof(number), "/%u", index);
	n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "anyverbs/%u/%s%s",
		     (unsigned)geteuid(), name, number);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static uid_t address_overflow_uid(void)
{
	unsigned uid = ADDRESS_OVERFLOW_UID;
	FILE *f = fopen("/proc/sys/kernel/overflowuid", "re");

	if (f != NULL) {
		if (fscanf(f, "%u", &uid) != 1)
			uid = ADDRESS_OVERFLOW_UID;
		fclose(f);
	}
	return uid;
}

bool address_user_is_unique(void)
{
	struct stat st;

	if (stat("/proc/self/ns/user", &st) == 0 && st.st_ino == ADDRESS_FIRST_USER_NS)
		return true;
	return geteuid() != address_overflow_uid();
}

bool address_peer_is_mine(int fd, s32 *pid)
{
	struct ucred cred;
	socklen_t length = sizeof(cred);

	*pid = 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
		return false;
	*pid = cred.pid;
	return cred.uid == geteuid();
}

/* A socket that is shut down for reading before it connects refuses all that its peer sends. Else
 * closing it could drop the last reference to a TCP socket with SO_LINGER and unsent data, and wait
 * for that. */
int address_probe(const struct sockaddr_un *addr, socklen_t length, s32 *pid)
{
	int err, fd = fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return -errno;
	(void)shutdown(fd, SHUT_RD); /* some sandbox' kernels need a connected socket for it */
	err = connect(fd, (const struct sockaddr *)addr, length) < 0 ? -errno : 0;
	if (err == 0 && !address_peer_is_mine(fd, pid))
		err = -EACCES;
	close(fd);
	return err;
}

u64 address_net_ns(void)
{
	struct stat st;
	u64 cookie = 0;
	socklen_t length = sizeof(cookie);
	int fd;

	if (stat("/proc/self/ns/net", &st) == 0)
		return st.st_ino;
	/* without /proc: the socket's inode serves as well, but differs from boot to boot */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) < 0)
		cookie = 0;
	close(fd);
	return cookie;
}

u64 address_user_ns(void)
{
	struct stat st;

	return stat("/proc/self/ns/user", &st) == 0 && st.st_ino != ADDRESS_FIRST_USER_NS
		       ? st.st_ino
		       : 0;
}

u64 address_pid_ns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}
