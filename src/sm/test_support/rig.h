/* rig.h: a fabric with subnet managers in virtual time, and a host that asks their SA.
 */
#ifndef SM_RIG_H
#define SM_RIG_H

#include "fabric/test_support/bed.h"
#include "sm/sm.h"

enum { RIG_SMS = 4, RIG_ANSWERS = 8192 };

struct rig {
	struct bed bed;
	struct {
		struct sm *sm;
		u32 port;
		struct rig *rig;
		bool deaf; /* it neither sends nor receives */
		u64 sent;
	} sms[RIG_SMS];
	u64 sms_began; /* so far */
	u32 sm_count;
	/* MADs for hosts, other than for SMs */
	struct fabric_mad answer[RIG_ANSWERS];
	u32 answer_port[RIG_ANSWERS];
	u32 answers;
	u32 liar; /* a CA's port that answers SMInfo; 0: none */
	u8 liar_state;
	u64 liar_guid;
	u64 mute_guid; /* of a port from which no NodeInfo comes; 0: none */
	u64 tid;
	u32 modifier; /* the attribute modifier of requests to the SA */
	/* a host hears a MAD; or NULL */
	void (*heard)(struct rig *r, u32 port, const struct fabric_mad *m);
} OWNED_BY(the test);

/* Of a topology's words; *r is static memory of the test. */
void rig_begin(struct rig *r, const char *spec);
/* The topology has been made in r->bed by hand, up to bed_up. */
void rig_take(struct rig *r);
void rig_end(struct rig *r);
/* An SM at a port of the fabric. */
struct sm *rig_add(struct rig *r, u32 port);
void rig_kill(struct rig *r, u32 index);
/* One that was killed begins anew. */
struct sm *rig_return(struct rig *r, u32 index);
/* A good place for an SM: the first switch, or a CA's first port. */
u32 rig_place(const struct rig *r);
/* The first port of the n-th CA, from 0. */
u32 rig_host(const struct rig *r, u32 n);
/* Lets `ms` pass, event by event. */
void rig_run(struct rig *r, u64 ms);
/* Until the SM is idle; the test fails if that takes more than `ms`. */
void rig_settle(struct rig *r, const struct sm *sm, u64 ms);
struct sm_report rig_report(const struct sm *sm);

/* Every two CA ports that active links connect have a route both ways. Returns how many pairs. */
u32 rig_check_pairs(struct rig *r);
/* Do links that are up connect the ports? */
bool rig_connected(struct rig *r, u32 a, u32 b);
/* Every link is active, at both ends. */
void rig_check_active(struct rig *r);

/* Asks the SA that the port knows; 200 bytes of a record. Returns the answer, or NULL. */
const struct fabric_mad *rig_ask(struct rig *r, u32 port, u8 method, u16 attribute, u64 mask,
				 const u8 *record);
/* Acknowledges a segment of an answer, and opens the window by 8. */
void rig_ack(struct rig *r, u32 port, const struct fabric_mad *m, u32 segment);
/* GetTable: gathers the records of an answer by RMPP. Returns their number. */
u32 rig_table(struct rig *r, u32 port, u16 attribute, u64 mask, const u8 *record, u8 *out,
	      u32 size, u32 max);
u16 rig_status(const struct fabric_mad *m);
u16 rig_lid(const struct rig *r, u32 port);
u64 rig_guid(const struct rig *r, u32 port);

#endif
