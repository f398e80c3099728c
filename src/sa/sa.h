/* sa.h: what the SA client offers to the RDMA CM beyond <rdma/ib_sa.h>. */
#ifndef SA_SA_H
#define SA_SA_H

/* Has the SA client told of devices, as ib_sa_register_client does first. The caller holds no lock.
 * May block. */
void sa_start(void);

#endif
