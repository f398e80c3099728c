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

/* The folder of a node below a place: one of a fabric is the machine's, another one its network
 * namespace's. */
static bool root_folder(const char *place, char *out, size_t size)
{
	const char *name = getenv("ANYVERBS_NODE"), *host = getenv("ANYVERBS_HOST");
	struct stat st;

	if (name == NULL || name[0] == '\0')
		name = "default";
	if (host != NULL && host[0] != '\0')
		return snprintf(out, size, "%s/%s-fabric/hosts/%s/sys", place, name, host) <
		       (int)size;
	return stat("/proc/self/ns/net", &st) == 0 &&
	       snprintf(out, size, "%s/%s-%llu/sys", place, name, (unsigned long long)st.st_ino) <
		       (int)size;
}

/* Tries a place: the tree must be this user's and contain devices. */
static bool root_try(const char *place, char *out, size_t size)
{
	char probe[512];
	struct stat st;

	if (!root_folder(place, out, size))
		return false;
	snprintf(probe, sizeof(probe), "%.480s/class/infiniband", out);
	return stat(probe, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* The same places, in the same order, as src/node/daemon/folder.c. */
static bool root_ask_places(char *out, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	unsigned user = geteuid();
	char place[256];

	if (runtime != NULL && runtime[0] == '/') {
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
