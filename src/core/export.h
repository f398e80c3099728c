/* export.h: what a context shows of its objects to processes that have a copy of its descriptor.
 *
 * The descriptor is a memory file of one layout: `struct export_head` and `struct export_entry`.
 * The process that opened the context has the only writable map that the file can ever have
 * (F_SEAL_FUTURE_WRITE), and keeps in it one entry for each domain, region and device memory.
 * Importers read the file (import.h); they ask the exporter nothing, so it need not run. A forked
 * child writes nothing.
 */
#ifndef CORE_EXPORT_H
#define CORE_EXPORT_H

#include <sys/types.h>

#include "base/compiler.h"

enum {
	EXPORT_MAGIC = 0x31507645,
	EXPORT_ENTRIES = 4096, /* objects at once; more are not listed */
	EXPORT_HEAD = 512,     /* bytes in front of the entries */
	EXPORT_PLACE = 256,
};

struct export_head {
	u32 magic;	/* EXPORT_MAGIC; 0: the context is closed, or its device gone */
	u32 unlisted;	/* objects that found no entry since the context was opened */
	s32 pid;	/* the exporter, as it sees itself */
	u32 pad;
	u64 guid;	/* the device's, network order */
	char place[EXPORT_PLACE]; /* the device's folder in sysfs, which no two nodes share */
} WRITTEN_UNDER(ib_export.lock);

/* An entry is valid while `handle` is not 0. A handle is used once. */
struct export_entry {
	u32 handle;
	u8 kind;   /* enum ib_uobject_kind */
	u8 plain;  /* a region over memory of the process */
	u16 pad;
	u32 access; /* of a region: IBV_ACCESS_* */
	s32 fd;	    /* of device memory: the exporter's descriptor of its file */
	u64 addr;   /* of a region: in the exporter; of device memory: its place in the file */
	u64 length; /* of a region or device memory: bytes */
	u64 iova;   /* of a region: its first address for requests */
	u64 inode;  /* of device memory: its file's */
} WRITTEN_UNDER(ib_export.lock);
_Static_assert(sizeof(struct export_head) <= EXPORT_HEAD, "the head lies before the entries");

struct ib_export;

/* Makes the file, close-on-exec, and shows nothing in it yet. Returns its descriptor, the caller's,
 * or a negative errno. `*export` is NULL where the kernel lacks the seal or the process the room:
 * then the file is empty and can be imported by nobody else. */
AV_EXPORT int ib_export_open(struct ib_export **export);
/* Of the functions below each takes a NULL for a context that shows nothing. */
/* From now on importers find the device. */
AV_EXPORT void ib_export_begin(struct ib_export *e, const char *place, u64 guid);
/* Importers find nothing more: the device has gone. */
AV_EXPORT void ib_export_end(struct ib_export *e);
/* Does ib_export_end, and frees `e`. The file stays. */
AV_EXPORT void ib_export_close(struct ib_export *e);
/* Lists an object. Returns the number of its entry, for the calls below; 0: not listed. */
AV_EXPORT u32 ib_export_add(struct ib_export *e, const struct export_entry *entry);
/* Returns the number of the entry of a handle; 0: not listed. Takes time for each entry. */
AV_EXPORT u32 ib_export_find(struct ib_export *e, u32 handle);
/* Gives an entry other values of the same object. `number` may be 0. */
AV_EXPORT void ib_export_change(struct ib_export *e, u32 number, const struct export_entry *entry);
/* Reads what an entry shows; false: `number` is 0. */
AV_EXPORT bool ib_export_get(struct ib_export *e, u32 number, struct export_entry *entry);
/* The object is no more. `number` may be 0. */
AV_EXPORT void ib_export_remove(struct ib_export *e, u32 number);

#endif
