/* place.c: the places of a node's folder, and the address of the socket in it.
 * In:    the user, the environment     Out: a descriptor of a folder that is ours alone
 * Runs:  any thread                    Locks: none
 */
#include "node/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sysfile.h"
#include "node/address.h"

/* A folder that nobody else can look into or could have prepared for us: its descriptor or a
 * negative errno. */
static int place_private(int at, const char *path)
{
	struct stat st;
	int fd;

	if (mkdirat(at, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0 &&
	    sysfile_access(fd, ".", W_OK) == 0)
		return fd;
	close(fd);
	return -EACCES;
}

/* Where folders of this user may lie; an empty string where a place does not apply. */
static void place_list(char places[PLACE_COUNT][PLACE_PATH])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	unsigned uid = geteuid();
	struct stat st;

	/* somebody else's (after su) is not for us */
	if (runtime != NULL && runtime[0] == '/' && strlen(runtime) < PLACE_PATH - 100 &&
	    stat(runtime, &st) == 0 && st.st_uid == uid)
		snprintf(places[0], PLACE_PATH, "%s/anyverbs", runtime);
	snprintf(places[1], PLACE_PATH, "/run/user/%u", uid);
	if (stat(places[1], &st) == 0 && st.st_uid == uid)
		snprintf(places[1], PLACE_PATH, "/run/user/%u/anyverbs", uid);
	else
		places[1][0] = '\0';
	snprintf(places[2], PLACE_PATH, "/tmp/anyverbs-%u", uid);
	snprintf(places[3], PLACE_PATH, "/dev/shm/anyverbs-%u", uid);
}

enum place_scope place_scope_wanted(void)
{
	return node_fabric_host() != NULL ? PLACE_MACHINE : PLACE_NETWORK;
}

/* PLACE/NAME-NETNS, or PLACE/NAME-fabric. */
static int place_try(const char *place, const char *leaf, bool make)
{
	int parent, fd;

	if (!make && access(place, W_OK) < 0)
		return -errno;
	parent = place_private(AT_FDCWD, place);
	if (parent < 0)
		return parent;
	fd = make || sysfile_access(parent, leaf, W_OK) == 0
		     ? place_private(parent, leaf)
		     : -ENOENT;
	close(parent);
	return fd;
}

int place_open(int index, enum place_scope scope, const char *name, bool make,
	       char path[PLACE_PATH])
{
	char places[PLACE_COUNT][PLACE_PATH], leaf[64];

	memset(places, 0, sizeof(places));
	place_list(places);
	path[0] = '\0';
	if (places[index][0] == '\0')
		return -ENODEV;
	if (scope == PLACE_MACHINE)
		snprintf(leaf, sizeof(leaf), "%s-fabric", name);
	else
		snprintf(leaf, sizeof(leaf), "%s-%llu", name,
			 (unsigned long long)address_net_ns());
	snprintf(path, PLACE_PATH, "%.120s/%s", places[index], leaf);
	return place_try(places[index], leaf, make);
}

bool place_in_use(int folder)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = openat(folder, "slots", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	bool used;

	if (fd < 0)
		return false;
	used = fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
	close(fd);
	return used;
}

socklen_t place_address(int folder, const char *path, struct sockaddr_un *out)
{
	size_t size = sizeof(out->sun_path);
	int n;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	n = snprintf(out->sun_path, size, "%s/" PLACE_SOCKET, path);
	/* longer than an address may be */
	if (n < 0 || (size_t)n >= size)
		snprintf(out->sun_path, size, "/proc/self/fd/%d/" PLACE_SOCKET, folder);
	return (socklen_t)sizeof(*out);
}
