/* gone.c: the fabric is gone, and takes the host's devices with it.
 * In:    news of the node    Out: DEVICE_FATAL, clients' remove
 * Runs:  the engine's thread starts a thread (anyverbs/gone), which calls clients and waits for
 * peers; one thread more for each device, which waits for its users
 * Locks: none
 *
 * Devices that are gone stay gone in this process and its children, whatever fabric comes next:
 * their ports and LIDs would be another fabric's. Their memory stays, since the thread that
 * receives MADs knows their ports.
 */
#include "driver/ib/ib.h"

#include <pthread.h>
#include <unistd.h>

#include "base/log.h"

#define GONE_LOOK_US 1000 /* between looks at a registration that another thread makes */

static bool gone_started ATOMIC_ONLY;

/* What waits for an answer of the fabric ends. */
static void gone_ports(struct hca_device *dev)
{
	for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++) {
		struct mad_port *both[] = { dev->port[n].smi, dev->port[n].gsi };

		for (u32 i = 0; i < ARRAY_LEN(both); i++) {
			if (both[i] == NULL)
				continue;
			mad_port_hold(both[i]); /* for the thread that receives */
			mad_port_remove(both[i]);
		}
	}
}

/* Ends when the last user has closed the device. */
static void *gone_unregister(void *arg)
{
	struct hca_device *dev = arg;

	pthread_setname_np(pthread_self(), "anyverbs/unplug");
	ib_unregister_device(&dev->soft.ib);
	return NULL;
}

static void gone_device(struct hca_device *dev)
{
	u32 state;
	int err;

	while ((state = __atomic_load_n(&dev->state, __ATOMIC_ACQUIRE)) == HCA_REGISTERING ||
	       !__atomic_compare_exchange_n(&dev->state, &state, HCA_GONE, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE))
		usleep(GONE_LOOK_US);
	if (state != HCA_REGISTERED) {
		soft_set_removed(&dev->soft);
		return;
	}
	gone_ports(dev);
	ib_device_unlist(&dev->soft.ib);
	soft_unplug(&dev->soft);
	err = progress_spawn(gone_unregister, dev);
	if (err != 0)
		log_warn("ib", "clients do not hear that %s is gone: error %d", dev->soft.ib.name,
			 -err);
}

static void *gone_main(void *arg)
{
	struct hca_device *dev;

	(void)arg;
	pthread_setname_np(pthread_self(), "anyverbs/gone");
	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		gone_device(dev);
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
