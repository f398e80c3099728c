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

/* Tries PLACE/NAME-NETNS/sys: it must be this user's and contain devices. */
static bool root_try(const char *place, char *out, size_t size)
{
	const char *name = getenv("ANYVERBS_NODE");
	struct stat st;
	char probe[512];

	if (stat("/proc/self/ns/net", &st) != 0)
		return false;
	snprintf(out, size, "%s/%s-%llu/sys", place,
		 name != NULL && name[0] != '\0' ? name : "default", (unsigned long long)st.st_ino);
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
