/* vma.h: the maps of this process' memory, as the kernel tells them.
 *
 * All functions may be called by any thread, block on nothing but the kernel's lock of the maps,
 * and allocate no memory.
 */
#ifndef BASE_VMA_H
#define BASE_VMA_H

#include "base/compiler.h"

enum { VMA_NAME = 4352 };

/* One map. */
struct vma {
	u64 start, end;		       /* addresses; end is behind the last byte */
	u64 offset;		       /* of start in the file; bytes */
	u64 device, inode;	       /* of the file; inode 0: no file */
	int prot;		       /* PROT_* */
	bool shared;		       /* MAP_SHARED */
	const char *name;	       /* of the file, or as "[heap]"; "": none, or not asked for */
} OWNED_BY(the caller);

struct vma_name {
	char text[VMA_NAME];
} OWNED_BY(the caller);

/* Opens the list of this process' maps. Returns a descriptor that the caller closes, or -1 with
 * errno. */
int vma_open(void);
/* Parses a line of the list into *m, whose name points into `line`. False: it is no such line, and
 * *m may be partly written. */
bool vma_parse(const char *line, struct vma *m);
/* Calls `fn` for every map in `fd`, the open list, in ascending order. *m lives until `fn` returns.
 * False: the list cannot be read, or not all of it. */
bool vma_each(int fd, void (*fn)(const struct vma *m, void *arg), void *arg);
/* Writes the map in which the address `at` lies to *m. fd: the open list of maps. `name` (or NULL:
 * the name is not asked for, which is faster) receives its name, to which m->name points.
 * Returns 1; 0 if no map is there; or a negative errno: this kernel cannot be asked so, or not
 * by `fd`. */
int vma_at(int fd, u64 at, struct vma *m, struct vma_name *name);
/* The same for the shared map of a file in which `from` lies, or else the next one above it;
 * without its name. */
int vma_at_shared_file(int fd, u64 from, struct vma *m);

#endif
