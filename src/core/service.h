/* service.h: clients of the midlayer that its other clients stand on: those of the SA, the CM and
 * the RDMA CM, which begin when something first asks for them.
 *
 * A device is added to services before other clients, and removed from them after those, whenever
 * the services begin: so a consumer's add may use them, and its remove too.
 */
#ifndef CORE_SERVICE_H
#define CORE_SERVICE_H

#include <rdma/ib_verbs.h>

#include "base/compiler.h"

struct core_service {
	struct ib_client client FIXED;
	bool settled ATOMIC_ONLY; /* it has begun, and every device has been added to it */
};

static inline bool core_service_is_settled(const struct core_service *s)
{
	/* pairs with the store in core_service_settle: what the adds have written is there */
	return __atomic_load_n(&s->settled, __ATOMIC_ACQUIRE);
}

/* Registers the client in front of those that are no services, unless it is. Returns when every
 * device has been added to it; inside a client's add or remove, when those have whose turn no
 * other thread has: that thread adds the others, so that two threads never wait for each other.
 * The caller holds no lock that add takes. May block. 0 or -ENOMEM. */
int core_service_begin(struct core_service *s);
/* Unregisters it. May block. */
void core_service_end(struct core_service *s);
/* In a forked child: it has not begun. */
static inline void core_service_drop_in_child(struct core_service *s)
{
	__atomic_store_n(&s->settled, false, __ATOMIC_RELAXED);
}

#endif
