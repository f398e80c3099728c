/* owner.c: how the owner writes the map, so that readers see whole records; counters; news.
 * In:    what other files of the room change    Out: the map, the counters, `changed`
 * Runs:  the owner's thread    Locks: none
 */
#include "fabric/fabric_priv.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "fabric/trap.h"

struct fabric_port_rec *fabric_port_begin(struct fabric *f, u32 port)
{
	struct fabric_port_rec *p = &f->port[port];

	fabric_store(p->seq, p->seq + 1);
	/* Pairs with the acquires in view_copy: who sees a new field sees an odd seq. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return p;
}

void fabric_port_end(struct fabric *f, u32 port)
{
	struct fabric_port_rec *p = &f->port[port];

	/* Pairs with the acquire in view_copy. */
	__atomic_store_n(&p->seq, p->seq + 1, __ATOMIC_RELEASE);
}

void fabric_routes_changed(struct fabric *f)
{
	/* Pairs with the acquire in fabric_generation. */
	__atomic_store_n(&f->header->generation, f->header->generation + 1, __ATOMIC_RELEASE);
}

void fabric_tell(struct fabric *f, u32 port, u32 what)
{
	if (what != 0 && f->told && fabric_node_of(f, port)->type == FABRIC_CA)
		f->ops->changed(f->arg, port, what);
}

void fabric_count(struct fabric *f, u32 port, enum fabric_error which, u32 n)
{
	u32 *counter = &f->counters.port[port].errors[which];
	u32 seen = fabric_load(*counter);

	fabric_store(*counter, seen + MIN(n, UINT32_MAX - seen));
}

const struct fabric_view *fabric_view(const struct fabric *f)
{
	return &f->view;
}

void fabric_close(struct fabric *f)
{
	if (f == NULL)
		return;
	if (f->counters_map != NULL)
		munmap(f->counters_map, f->counters_bytes);
	if (f->tables != NULL)
		munmap(f->tables, f->view.bytes);
	if (f->traps != NULL)
		trap_destroy(f);
	free(f->traps);
	free(f->queue);
	free(f);
}
