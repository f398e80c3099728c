/* gone.c: the fabric is gone, and takes the host's devices with it.
 * In:    news of the node    Out: soft_leave
 * Runs:  the engine's thread starts a thread (anyverbs/gone), which calls clients and waits for
 * peers
 * Locks: none
 *
 * Devices that are gone stay gone in this process and its children, whatever fabric comes next:
 * their ports and LIDs would be another fabric's. Their memory stays, since the thread that
 * receives MADs knows their ports.
 */
#include "driver/ib/ib.h"

#include <pthread.h>

#include "base/log.h"

static bool gone_started ATOMIC_ONLY;

/* What waits for an answer of the fabric ends. */
void hca_gone_leave(struct soft_device *soft)
{
	struct hca_device *dev = hca_of(soft);

	for (u8 n = 1; n <= soft->ib.phys_port_cnt; n++) {
		struct mad_port *both[] = { dev->port[n].smi, dev->port[n].gsi };

		for (u32 i = 0; i < ARRAY_LEN(both); i++) {
			if (both[i] == NULL)
				continue;
			mad_port_hold(both[i]); /* for the thread that receives */
			mad_port_remove(both[i]);
		}
	}
}

static void *gone_main(void *arg)
{
	struct hca_device *dev;

	(void)arg;
	pthread_setname_np(pthread_self(), "anyverbs/gone");
	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		soft_leave(&dev->soft);
	return NULL;
}

void hca_gone(void)
{
	int err;

	if (__atomic_exchange_n(&gone_started, true, __ATOMIC_ACQ_REL))
		return;
	err = progress_spawn(gone_main, NULL);
	if (err == 0)
		return;
	log_warn("ib", "the devices of a fabric that is gone stay: error %d", -err);
	__atomic_store_n(&gone_started, false, __ATOMIC_RELEASE);
}

void hca_gone_drop_in_child(void)
{
	__atomic_store_n(&gone_started, false, __ATOMIC_RELAXED);
}
