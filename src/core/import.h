/* import.h: what another process' context has, by a copy of its descriptor (export.h).
 *
 * The descriptor is the right to read the file. The exporter's list of maps shows that it lives: it
 * alone has the file mapped for writing. A process that may not read that list (of another user, or
 * of a process that is not dumpable) imports nothing.
 *
 * The file is the other process': it is copied, then judged. No call waits for that process. A
 * descriptor that is no memory file with the right seals is not read at all: another file system
 * could let a reader wait.
 *
 * All of them return 0 or a negative errno: -EBADF; -EOPNOTSUPP: `fd` names no context that can be
 * imported; -ENODEV: its context is closed, its device or the exporter has gone; -EACCES: this
 * process may not read the exporter's maps. Any thread; they take no lock.
 */
#ifndef CORE_IMPORT_H
#define CORE_IMPORT_H

#include "core/export.h"
#include "core/ucontext.h"

/* Is `fd` a memory file that is sealed as contexts' files are? No other file system is asked. */
AV_EXPORT bool ib_import_is_context(int fd);
/* Writes the head of the file; `place` ends with 0. */
AV_EXPORT int ib_import_device(int fd, struct export_head *head);
/* Writes the entry of an object. -ENOENT: none of that kind has the handle; -EOPNOTSUPP also: it
 * may be one that found no room. */
AV_EXPORT int ib_import_find(int fd, enum ib_uobject_kind kind, u32 handle,
			     struct export_entry *entry);
/* Finds the exporter's region `entry`, of ib_import_find, in the memory of this process: writes the
 * address of its first byte here, and whether all of it may be written. -EOPNOTSUPP also: it is no
 * plain region, not all of it is shared memory, or this process has not mapped it in one piece; the
 * log says which. -ENOENT: it has ended meanwhile. -ENOMEM. */
AV_EXPORT int ib_import_memory(int fd, const struct export_entry *entry, u64 *here, bool *writable);
/* Opens the file of the exporter's device memory `entry`, for reading and writing. Returns the
 * descriptor, the caller's. -ENOENT: it has ended meanwhile, or is not what the entry says. */
AV_EXPORT int ib_import_open(int fd, const struct export_entry *entry);

#endif
