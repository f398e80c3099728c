/* conn_model.c: the states of IBA vol 1, 12.9.7 (connections), 12.8 (alternate paths) and 12.11
 * (SIDR), as two tables: calls and events. It knows nothing of src/cm/ib.
 * In: a call or an event    Out: the state that follows, if there is one
 */
#include "conn.h"

#define IN(state) (1u << IB_CM_##state)
#define LAP(state) (1u << IB_CM_LAP_##state)
#define MRA_LAP(state) (1u << IB_CM_MRA_LAP_##state)
enum { LAP_ANY = ~0, LAP_CALM = LAP(UNINIT) | LAP(IDLE), NO_CHANGE = 99 };

enum {
	ASKING = IN(REQ_SENT) | IN(MRA_REQ_RCVD),
	ASKED = IN(REQ_RCVD) | IN(MRA_REQ_SENT),
	OFFERING = IN(REP_SENT) | IN(MRA_REP_RCVD),
	OFFERED = IN(REP_RCVD) | IN(MRA_REP_SENT),
	/* the queue pair may be in use: it rests before it is used again */
	JOINED = OFFERED | IN(ESTABLISHED) | IN(DREQ_SENT),
};

struct conn_row {
	u32 what; /* enum conn_call or enum ib_cm_event_type */
	u32 states, laps;
	u32 next, next_lap;
};

static const struct conn_row conn_calls[] = {
	{ CONN_REQ, IN(IDLE), LAP_ANY, IB_CM_REQ_SENT, IB_CM_LAP_UNINIT },
	{ CONN_REP, ASKED, LAP_ANY, IB_CM_REP_SENT, NO_CHANGE },
	{ CONN_RTU, OFFERED, LAP_ANY, IB_CM_ESTABLISHED, NO_CHANGE },
	{ CONN_ESTABLISH, OFFERING, LAP_ANY, IB_CM_ESTABLISHED, NO_CHANGE },
	{ CONN_REJ, ASKING | ASKED | OFFERED, LAP_ANY, IB_CM_IDLE, IB_CM_LAP_UNINIT },
	{ CONN_REJ, OFFERING, LAP_ANY, IB_CM_TIMEWAIT, IB_CM_LAP_UNINIT },
	{ CONN_MRA, IN(REQ_RCVD), LAP_ANY, IB_CM_MRA_REQ_SENT, NO_CHANGE },
	{ CONN_MRA, IN(REP_RCVD), LAP_ANY, IB_CM_MRA_REP_SENT, NO_CHANGE },
	{ CONN_MRA, IN(ESTABLISHED), LAP(RCVD), NO_CHANGE, IB_CM_MRA_LAP_SENT },
	{ CONN_DREQ, IN(ESTABLISHED), LAP_ANY, IB_CM_DREQ_SENT, NO_CHANGE },
	{ CONN_DREP, IN(DREQ_RCVD), LAP_ANY, IB_CM_TIMEWAIT, IB_CM_LAP_UNINIT },
	{ CONN_LAP, IN(ESTABLISHED), LAP_CALM, NO_CHANGE, IB_CM_LAP_SENT },
	{ CONN_APR, IN(ESTABLISHED), LAP(RCVD) | MRA_LAP(SENT), NO_CHANGE, IB_CM_LAP_IDLE },
	{ CONN_SIDR_REQ, IN(IDLE), LAP_ANY, IB_CM_SIDR_REQ_SENT, NO_CHANGE },
	{ CONN_SIDR_REP, IN(SIDR_REQ_RCVD), LAP_ANY, IB_CM_IDLE, NO_CHANGE },
};

/* DREP_RECEIVED and DREQ_ERROR while established: the CM has left a connection that the peer had
 * forgotten (12.9.8.3.1). REJ: below. */
static const struct conn_row conn_events[] = {
	{ IB_CM_REQ_ERROR, ASKING, LAP_ANY, IB_CM_IDLE, NO_CHANGE },
	{ IB_CM_REQ_RECEIVED, ASKING, LAP_ANY, IB_CM_REQ_RCVD, NO_CHANGE }, /* of two peers */
	{ IB_CM_REP_ERROR, OFFERING, LAP_ANY, IB_CM_IDLE, NO_CHANGE },
	{ IB_CM_REP_RECEIVED, ASKING, LAP_ANY, IB_CM_REP_RCVD, NO_CHANGE },
	{ IB_CM_RTU_RECEIVED, OFFERING, LAP_ANY, IB_CM_ESTABLISHED, NO_CHANGE },
	{ IB_CM_DREQ_RECEIVED, OFFERING | IN(ESTABLISHED) | IN(DREQ_SENT), LAP_ANY,
	  IB_CM_DREQ_RCVD, IB_CM_LAP_UNINIT },
	{ IB_CM_DREP_RECEIVED, IN(ESTABLISHED) | IN(DREQ_SENT) | IN(DREQ_RCVD), LAP_ANY,
	  IB_CM_TIMEWAIT, IB_CM_LAP_UNINIT },
	{ IB_CM_DREQ_ERROR, IN(ESTABLISHED) | IN(DREQ_SENT), LAP_ANY, IB_CM_TIMEWAIT,
	  IB_CM_LAP_UNINIT },
	{ IB_CM_TIMEWAIT_EXIT, IN(TIMEWAIT), LAP_ANY, IB_CM_IDLE, IB_CM_LAP_UNINIT },
	{ IB_CM_MRA_RECEIVED, IN(REQ_SENT), LAP_ANY, IB_CM_MRA_REQ_RCVD, NO_CHANGE },
	{ IB_CM_MRA_RECEIVED, IN(REP_SENT), LAP_ANY, IB_CM_MRA_REP_RCVD, NO_CHANGE },
	{ IB_CM_MRA_RECEIVED, IN(ESTABLISHED), LAP(SENT), NO_CHANGE, IB_CM_MRA_LAP_RCVD },
	{ IB_CM_LAP_RECEIVED, IN(ESTABLISHED), LAP_CALM, NO_CHANGE, IB_CM_LAP_RCVD },
	{ IB_CM_APR_RECEIVED, IN(ESTABLISHED), LAP(SENT) | MRA_LAP(RCVD), NO_CHANGE,
	  IB_CM_LAP_IDLE },
	{ IB_CM_LAP_ERROR, IN(ESTABLISHED), LAP(SENT) | MRA_LAP(RCVD), NO_CHANGE, IB_CM_LAP_IDLE },
	{ IB_CM_SIDR_REQ_ERROR, IN(SIDR_REQ_SENT), LAP_ANY, IB_CM_IDLE, NO_CHANGE },
	{ IB_CM_SIDR_REP_RECEIVED, IN(SIDR_REQ_SENT), LAP_ANY, IB_CM_IDLE, NO_CHANGE },
};

static bool conn_model_step(const struct conn_row *rows, u32 count, u32 what,
			    enum ib_cm_state *state, enum ib_cm_lap_state *lap)
{
	for (u32 i = 0; i < count; i++) {
		const struct conn_row *row = &rows[i];

		if (row->what != what || !(row->states & 1u << *state) || !(row->laps & 1u << *lap))
			continue;
		if (row->next != NO_CHANGE)
			*state = (enum ib_cm_state)row->next;
		if (row->next_lap != NO_CHANGE)
			*lap = (enum ib_cm_lap_state)row->next_lap;
		return true;
	}
	return false;
}

bool conn_model_call(enum conn_call call, enum ib_cm_state *state, enum ib_cm_lap_state *lap)
{
	return conn_model_step(conn_calls, ARRAY_LEN(conn_calls), call, state, lap);
}

/* A REJ ends all that is not ended yet. Who was refused as stale waits, as the peer does. */
static bool conn_model_rejected(enum ib_cm_rej_reason reason, enum ib_cm_state *state)
{
	u32 in = 1u << *state;

	if (!(in & (ASKING | ASKED | OFFERING | JOINED)))
		return false;
	*state = in & JOINED || reason == IB_CM_REJ_STALE_CONN ? IB_CM_TIMEWAIT : IB_CM_IDLE;
	return true;
}

bool conn_model_event(const struct ib_cm_event *event, enum ib_cm_state *state,
		      enum ib_cm_lap_state *lap)
{
	if (event->event == IB_CM_REJ_RECEIVED) {
		*lap = IB_CM_LAP_UNINIT;
		return conn_model_rejected(event->param.rej_rcvd.reason, state);
	}
	return conn_model_step(conn_events, ARRAY_LEN(conn_events), event->event, state, lap);
}

bool conn_model_ends(enum ib_cm_state state)
{
	return (1u << state & (ASKING | OFFERING | IN(DREQ_SENT) | IN(TIMEWAIT) |
			       IN(SIDR_REQ_SENT))) != 0;
}
