/* absent.h: reports for queue pairs that do not receive; all inside the path's callbacks. */
#ifndef IBT_RECEIVE_ABSENT_H
#define IBT_RECEIVE_ABSENT_H

#include "ibt/ibt.h"

/* Reports to an RC requester on a reliable path that its target is absent, does not receive, or
 * will not respond: the requester's timeout begins. Without room the report is kept. */
void absent_report(struct path_dest *from, const struct pkt *p);
/* Sends kept reports, as far as there is room. */
void absent_tell(struct path_dest *from);

static inline bool absent_is_owed(const struct path_dest *from)
{
	return from->absent.count != 0 || from->absent.all;
}

#endif
