/* root.c: finds the node's tree.
 * In: the process, its environment    Out: a folder    Runs: any thread, only for redirected paths
 * Locks: the loader's
 * Nothing is cached: a node may start, and a forked child may change its environment.
 */
#include "root.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef const char *(*root_question)(void);

/* The stack may be in a dlopened plug-in's own scope, which RTLD_DEFAULT does not search. */
static bool root_ask_stack(char *out, size_t size)
{
	root_question ask = (root_question)dlsym(RTLD_DEFAULT, "ib_anyverbs_sysfs_root");
	void *library = NULL;
	const char *answer = NULL;

	if (ask == NULL) {
		library = dlopen("libanyverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (library != NULL)
			ask = (root_question)dlsym(library, "ib_anyverbs_sysfs_root");
	}
	if (ask != NULL)
		answer = ask();
	if (answer != NULL && answer[0] == '/')
		snprintf(out, size, "%s", answer);
	if (library != NULL)
		dlclose(library);
	return answer != NULL && answer[0] == '/';
}

static bool root_ask_environment(char *out, size_t size)
{
	const char *told = getenv("ANYVERBS_SYSFS");

	if (told == NULL || told[0] != '/')
		return false;
	return snprintf(out, size, "%s", told) < (int)size;
}

/* Tells whether nobody else can look into the folder or could have prepared it, as place_private()
 * of src/node/place.c. A link is no folder. */
static bool root_is_private(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       (st.st_mode & 077) == 0;
}

/* The folder of a node below a place: one of a fabric is the machine's, another one its network
 * namespace's. */
static bool root_folder(const char *place, const char *host, char *out, size_t size)
{
	const char *name = getenv("ANYVERBS_NODE");
	struct stat st;

	if (name == NULL || name[0] == '\0')
		name = "default";
	if (host != NULL)
		return snprintf(out, size, "%s/%s-fabric", place, name) < (int)size;
	return stat("/proc/self/ns/net", &st) == 0 &&
	       snprintf(out, size, "%s/%s-%llu", place, name, (unsigned long long)st.st_ino) <
		       (int)size;
}

/* Tries a place: the tree must contain devices, in folders that are this user's alone. */
static bool root_try(const char *place, char *out, size_t size)
{
	const char *host = getenv("ANYVERBS_HOST");
	char folder[512], probe[512];
	struct stat st;
	int n;

	if (host != NULL && host[0] == '\0')
		host = NULL;
	if (!root_folder(place, host, folder, sizeof(folder)) || !root_is_private(place) ||
	    !root_is_private(folder))
		return false;
	n = host != NULL ? snprintf(out, size, "%s/hosts/%s/sys", folder, host)
			 : snprintf(out, size, "%s/sys", folder);
	snprintf(probe, sizeof(probe), "%.480s/class/infiniband", out);
	return n < (int)size && stat(probe, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The same places, in the same order, as src/node/place.c. */
static bool root_ask_places(char *out, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	unsigned user = geteuid();
	char place[256];
	struct stat st;

	/* somebody else's (after su) is not for us */
	if (runtime != NULL && runtime[0] == '/' && stat(runtime, &st) == 0 && st.st_uid == user) {
		snprintf(place, sizeof(place), "%.200s/anyverbs", runtime);
		if (root_try(place, out, size))
			return true;
	}
	snprintf(place, sizeof(place), "/run/user/%u/anyverbs", user);
	if (root_try(place, out, size))
		return true;
	snprintf(place, sizeof(place), "/tmp/anyverbs-%u", user);
	if (root_try(place, out, size))
		return true;
	snprintf(place, sizeof(place), "/dev/shm/anyverbs-%u", user);
	return root_try(place, out, size);
}

bool root_find(char *out, size_t size)
{
	return root_ask_stack(out, size) || root_ask_environment(out, size) ||
	       root_ask_places(out, size);
}
