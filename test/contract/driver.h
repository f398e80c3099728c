/* driver.h: what a driver exports to be run through the contract suite. docs/driver-authors.md says
 * how.
 *
 * A shared object with these two functions, named by CONTRACT_DRIVER, takes the place of the RoCE
 * adapter in every program of this folder. It links libanyverbs.
 */
#ifndef TEST_CONTRACT_DRIVER_H
#define TEST_CONTRACT_DRIVER_H

#include <rdma/ib_verbs.h>

/* Registers one more device, with a port 1 that is up, whose queue pairs reach each other; NULL:
 * it cannot. Called from a thread that may sleep, several times in one process. */
AV_EXPORT struct ib_device *contract_plug(void);
/* ib_unregister_device, and everything that the driver has for it. */
AV_EXPORT void contract_unplug(struct ib_device *device);

#endif
