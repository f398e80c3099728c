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

#include "base/thread.h"

static void *gone_main(void *arg);

static struct thread gone_thread = THREAD_INIT("anyverbs/gone", THREAD_STACK, gone_main, NULL);

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
	thread_begin_later(&gone_thread);
}

void hca_gone_drop_in_child(void)
{
	thread_reset_in_child(&gone_thread);
}
