/* ucontext.h: what the doors' contexts of one opened device share: the device, and one table of
 * handles in which every object has its number.
 *
 * A ucontext is named by the inode of the descriptor that its first context made, so that any copy
 * of the descriptor leads to it. An object has one struct ib_uobject per context that knows it: the
 * creator's, and one more for each import. Functions take locks that are held shortly; those that
 * make or end a ucontext may block. Nothing here calls a driver.
 */
#ifndef CORE_UCONTEXT_H
#define CORE_UCONTEXT_H

#include <rdma/ib_verbs.h>

#include "base/compiler.h"

struct ib_ucontext;

enum ib_uobject_kind {
	IB_UOBJECT_PD,
	IB_UOBJECT_MR,
	IB_UOBJECT_MW,
	IB_UOBJECT_CQ,
	IB_UOBJECT_SRQ,
	IB_UOBJECT_QP,
	IB_UOBJECT_DM,
};

/* One context's hold of an object, embedded in the door's own structure of it. The door reads;
 * the functions below write, under the table's lock but for a creator's first fields. It reads
 * `gone` without: an application may not destroy what it uses. */
struct ib_uobject {
	struct ib_uobject *next OWNED_BY(ib_ucontext.lock); /* of the table: with the same hash */
	/* a ring of the holds of one object */
	struct ib_uobject *next_hold OWNED_BY(ib_ucontext.lock);
	void *object FIXED; /* the midlayer's: ib_pd, ib_mr and so on */
	u32 handle FIXED; /* unique in the ucontext over all kinds; an import has the creator's */
	u8 kind FIXED; /* enum ib_uobject_kind */
	bool gone OWNED_BY(ib_ucontext.lock); /* the object was destroyed through another hold */
	bool blocks FIXED; /* the object may not be destroyed while this hold exists */
};
_Static_assert(sizeof(struct ib_uobject) <= 32, "a door's queue pair has one in its last line");

/* Makes the ucontext that the inode of `fd` names, with one reference. `owner` is what the door
 * wants to find again (ib_ucontext_owner); `release(owner)` runs when the last reference goes, in
 * that caller, with no lock held. NULL: no memory, or `fd` is no descriptor; then `release` is not
 * called. */
AV_EXPORT struct ib_ucontext *ib_ucontext_create(int fd, void *owner,
						 void (*release)(void *owner));
/* The handles of a ucontext that stands for another process' begin above this number; that
 * process' are below. */
#define IB_UCONTEXT_OWN_HANDLES 0x80000000u
/* As create, for a descriptor of another process' ucontext. If this process has a ucontext for it
 * by now, returns that with one more reference, and `release(owner)` has run. */
AV_EXPORT struct ib_ucontext *ib_ucontext_import(int fd, void *owner,
						 void (*release)(void *owner));
/* The ucontext that a descriptor names, with one more reference; NULL: none. */
AV_EXPORT struct ib_ucontext *ib_ucontext_find(int fd);
/* Gives a reference of create or find back. All holds of the table must be gone with the last. */
AV_EXPORT void ib_ucontext_put(struct ib_ucontext *u);
/* The last context of `u` is closed: no descriptor leads to it any more. References stay. */
AV_EXPORT void ib_ucontext_unname(struct ib_ucontext *u);
AV_EXPORT void *ib_ucontext_owner(const struct ib_ucontext *u);

/* A handle for an object that no import and no event names (an address handle): it is in no
 * table. */
AV_EXPORT u32 ib_ucontext_new_handle(struct ib_ucontext *u);
/* Enters an object that a context has created: gives it a handle, and makes it known by that. Never
 * fails; the cost does not grow with the number of objects.
 * `uobj` stays the caller's memory until ib_uobject_remove. */
AV_EXPORT void ib_uobject_add(struct ib_ucontext *u, struct ib_uobject *uobj,
			      enum ib_uobject_kind kind, void *object);
/* Enters an object that stands for another process' object of that handle: false if there is one
 * already, and `uobj` is in no table. It stays entered until the ucontext ends, and `uobj` the
 * caller's memory until then. */
AV_EXPORT bool ib_uobject_stand_in(struct ib_ucontext *u, struct ib_uobject *uobj,
				   enum ib_uobject_kind kind, u32 handle, void *object);
/* One more hold, in `copy`, of the object that the handle names; with `blocks`, one that keeps it
 * from being destroyed. Returns the object; NULL: no object of that kind has the handle, or it is
 * gone, and *copy is as it was. */
AV_EXPORT void *ib_uobject_share(struct ib_ucontext *u, enum ib_uobject_kind kind, u32 handle,
				 bool blocks, struct ib_uobject *copy);
/* Does another hold of the object block its destruction? */
AV_EXPORT bool ib_uobject_is_blocked(struct ib_ucontext *u, struct ib_uobject *uobj);
/* The objects of that kind, in a list of *count that the caller frees; NULL: none, or no memory. */
AV_EXPORT void **ib_uobject_list(struct ib_ucontext *u, enum ib_uobject_kind kind, u32 *count);
/* In a forked child, its only thread: `fn` for each hold of that kind, of every ucontext. */
AV_EXPORT void ib_uobject_each_in_child(enum ib_uobject_kind kind,
					void (*fn)(struct ib_uobject *uobj));
/* Takes a hold out of the table. `destroyed`: the object is no more; its other holds become
 * `gone`. */
AV_EXPORT void ib_uobject_remove(struct ib_ucontext *u, struct ib_uobject *uobj, bool destroyed);

#endif
