/* issm.c: opens /dev/infiniband/issmN by the stack.
 * In:    the folder of the device in the node's tree      Out: a descriptor of the stack
 * Runs:  any thread    Locks: the loader's
 */
#include "issm.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*issm_question)(const char *device, uint8_t port);

bool issm_is(const char *path)
{
	const char *leaf = strrchr(path, '/');

	return leaf != NULL && strncmp(leaf, "/issm", 5) == 0;
}

/* The stack may be in a dlopened plug-in's own scope. It stays loaded: it has threads. */
static issm_question issm_stack(void)
{
	issm_question ask = (issm_question)dlsym(RTLD_DEFAULT, "umad_open_sm");
	void *library = ask == NULL ? dlopen("libanyverbs.so.1", RTLD_LAZY) : NULL;

	if (library != NULL)
		ask = (issm_question)dlsym(library, "umad_open_sm");
	return ask;
}

/* One line of a file in the folder, without its end. */
static bool issm_read(const char *folder, const char *file, char *out, int size)
{
	char path[4200];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%.4096s/%s", folder, file);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	ok = fgets(out, size, f) != NULL;
	fclose(f);
	if (ok)
		out[strcspn(out, "\n")] = '\0';
	return ok;
}

int issm_open(const char *path)
{
	char device[64], port[16];
	issm_question ask;
	int fd = -ENXIO;

	if (issm_read(path, "ibdev", device, sizeof(device)) &&
	    issm_read(path, "port", port, sizeof(port)) && (ask = issm_stack()) != NULL)
		fd = ask(device, (uint8_t)strtoul(port, NULL, 10));
	if (fd >= 0)
		return fd;
	errno = -fd;
	return -1;
}
