/* qp_state.c: which changes of state a QP may make, and which attributes each needs and allows.
 * In: ib_modify_qp of any driver    Out: yes or no    Runs: anywhere    Locks: none
 * Spec: IBA vol 1, 10.3.1 and 11.2.5.2
 *
 * Every state may go to RESET and, but for RESET itself, to ERR, with no attribute at all; those
 * cells need no row.
 */
#include <errno.h>

#include "core/core_priv.h"

#define T(type) (1u << IB_QPT_##type)
#define ALL_TYPES (~0u)
#define DATAGRAM (T(UD) | T(SMI) | T(GSI))
#define XRC (T(XRC_INI) | T(XRC_TGT))
#define CONNECTED (T(RC) | T(UC) | XRC)
#define REQUESTER (T(RC) | T(XRC_INI)) /* sends requests that are acknowledged */
#define RESPONDER (T(RC) | T(XRC_TGT)) /* answers with RNR and READ responses */

#define A(attribute) IB_QP_##attribute
#define PATH_OPTIONS (A(ALT_PATH) | A(ACCESS_FLAGS) | A(PATH_MIG_STATE))

/* Rows of one cell add up: a type is given what every row says that names it. */
struct qp_rule {
	u8 from, to;
	u32 types;    /* 1 << enum ib_qp_type */
	u32 required; /* enum ib_qp_attr_mask */
	u32 optional;
} FIXED;

static const struct qp_rule qp_rules[] = {
	{ IB_QPS_RESET, IB_QPS_INIT, ALL_TYPES, 0, 0 },
	{ IB_QPS_RESET, IB_QPS_INIT, CONNECTED, A(PKEY_INDEX) | A(PORT) | A(ACCESS_FLAGS), 0 },
	{ IB_QPS_RESET, IB_QPS_INIT, DATAGRAM, A(PKEY_INDEX) | A(QKEY), 0 },
	{ IB_QPS_RESET, IB_QPS_INIT, T(UD) | T(RAW_PACKET), A(PORT), 0 },

	{ IB_QPS_INIT, IB_QPS_INIT, ALL_TYPES, 0, 0 },
	{ IB_QPS_INIT, IB_QPS_INIT, CONNECTED, 0, A(PKEY_INDEX) | A(PORT) | A(ACCESS_FLAGS) },
	{ IB_QPS_INIT, IB_QPS_INIT, DATAGRAM, 0, A(PKEY_INDEX) | A(QKEY) },
	{ IB_QPS_INIT, IB_QPS_INIT, T(UD), 0, A(PORT) },

	{ IB_QPS_INIT, IB_QPS_RTR, ALL_TYPES, 0, 0 },
	{ IB_QPS_INIT, IB_QPS_RTR, CONNECTED, A(AV) | A(PATH_MTU) | A(DEST_QPN) | A(RQ_PSN),
	  A(ALT_PATH) | A(ACCESS_FLAGS) | A(PKEY_INDEX) },
	{ IB_QPS_INIT, IB_QPS_RTR, RESPONDER, A(MAX_DEST_RD_ATOMIC) | A(MIN_RNR_TIMER), 0 },
	{ IB_QPS_INIT, IB_QPS_RTR, DATAGRAM, 0, A(PKEY_INDEX) | A(QKEY) },

	{ IB_QPS_RTR, IB_QPS_RTS, ALL_TYPES, 0, 0 },
	{ IB_QPS_RTR, IB_QPS_RTS, CONNECTED | DATAGRAM, A(SQ_PSN), A(CUR_STATE) },
	{ IB_QPS_RTR, IB_QPS_RTS, CONNECTED, 0, PATH_OPTIONS },
	{ IB_QPS_RTR, IB_QPS_RTS, T(RC) | XRC, A(TIMEOUT), 0 },
	{ IB_QPS_RTR, IB_QPS_RTS, REQUESTER, A(RETRY_CNT) | A(RNR_RETRY) | A(MAX_QP_RD_ATOMIC), 0 },
	{ IB_QPS_RTR, IB_QPS_RTS, RESPONDER, 0, A(MIN_RNR_TIMER) },
	{ IB_QPS_RTR, IB_QPS_RTS, DATAGRAM, 0, A(QKEY) },
	{ IB_QPS_RTR, IB_QPS_RTS, T(RAW_PACKET), 0, A(RATE_LIMIT) },

	{ IB_QPS_RTS, IB_QPS_RTS, ALL_TYPES, 0, 0 },
	{ IB_QPS_RTS, IB_QPS_RTS, CONNECTED, 0, A(CUR_STATE) | PATH_OPTIONS },
	{ IB_QPS_RTS, IB_QPS_RTS, RESPONDER, 0, A(MIN_RNR_TIMER) },
	{ IB_QPS_RTS, IB_QPS_RTS, DATAGRAM, 0, A(CUR_STATE) | A(QKEY) },
	{ IB_QPS_RTS, IB_QPS_RTS, T(RAW_PACKET), 0, A(RATE_LIMIT) },

	{ IB_QPS_RTS, IB_QPS_SQD, ALL_TYPES, 0, 0 },
	{ IB_QPS_RTS, IB_QPS_SQD, CONNECTED | DATAGRAM, 0, A(EN_SQD_ASYNC_NOTIFY) },

	{ IB_QPS_SQD, IB_QPS_RTS, ALL_TYPES, 0, 0 },
	{ IB_QPS_SQD, IB_QPS_RTS, CONNECTED, 0, A(CUR_STATE) | PATH_OPTIONS },
	{ IB_QPS_SQD, IB_QPS_RTS, RESPONDER, 0, A(MIN_RNR_TIMER) },
	{ IB_QPS_SQD, IB_QPS_RTS, DATAGRAM, 0, A(CUR_STATE) | A(QKEY) },

	{ IB_QPS_SQD, IB_QPS_SQD, ALL_TYPES, 0, 0 },
	{ IB_QPS_SQD, IB_QPS_SQD, CONNECTED, 0, A(AV) | A(PKEY_INDEX) | PATH_OPTIONS },
	{ IB_QPS_SQD, IB_QPS_SQD, T(RC) | XRC, 0, A(PORT) | A(TIMEOUT) },
	{ IB_QPS_SQD, IB_QPS_SQD, REQUESTER, 0, A(RETRY_CNT) | A(RNR_RETRY) | A(MAX_QP_RD_ATOMIC) },
	{ IB_QPS_SQD, IB_QPS_SQD, RESPONDER, 0, A(MAX_DEST_RD_ATOMIC) | A(MIN_RNR_TIMER) },
	{ IB_QPS_SQD, IB_QPS_SQD, DATAGRAM, 0, A(PKEY_INDEX) | A(QKEY) },

	{ IB_QPS_SQE, IB_QPS_RTS, ALL_TYPES, 0, 0 },
	{ IB_QPS_SQE, IB_QPS_RTS, DATAGRAM, 0, A(CUR_STATE) | A(QKEY) },
	{ IB_QPS_SQE, IB_QPS_RTS, T(UC), 0, A(CUR_STATE) | A(ACCESS_FLAGS) },
};

/* To RESET from anywhere, to ERR from anywhere but RESET. */
static bool core_qp_move_is_universal(enum ib_qp_state from, enum ib_qp_state to)
{
	return to == IB_QPS_RESET || (to == IB_QPS_ERR && from != IB_QPS_RESET);
}

int ib_modify_qp_is_ok(enum ib_qp_state cur, enum ib_qp_state next, enum ib_qp_type type,
		       enum ib_qp_attr_mask mask)
{
	u32 required = 0, allowed = A(STATE), given = (u32)mask;
	bool known = core_qp_move_is_universal(cur, next);

	if ((u32)cur > IB_QPS_ERR || (u32)next > IB_QPS_ERR || (u32)type >= IB_QPT_MAX)
		return 0;
	for (u32 i = 0; i < ARRAY_LEN(qp_rules); i++) {
		const struct qp_rule *rule = &qp_rules[i];

		if (rule->from != cur || rule->to != next || !(rule->types & 1u << type))
			continue;
		known = true;
		required |= rule->required;
		allowed |= rule->required | rule->optional;
	}
	return known && (given & required) == required && !(given & ~allowed);
}
