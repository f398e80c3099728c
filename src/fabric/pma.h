/* pma.h: the performance management agent of every port.
 */
#ifndef FABRIC_PMA_H
#define FABRIC_PMA_H

#include "fabric/fabric_priv.h"

/* Answers a GMP of the class performance management that has reached a node, in place. False:
 * there is no answer. */
bool pma_answer(struct fabric *f, u32 port, struct fabric_mad *m);

#endif
