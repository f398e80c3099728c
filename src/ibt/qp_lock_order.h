/* qp_lock_order.h: sq_lock before rq_lock, said once so that clang can check it across two structs.
 * Nothing defines the lock.
 */
#ifndef IBT_QP_LOCK_ORDER_H
#define IBT_QP_LOCK_ORDER_H

#include "base/lock.h"

extern struct lock qp_lock_order ONE_AT_A_TIME;

#endif
