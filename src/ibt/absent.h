/* absent.h: answers for queue pairs that do not receive; all inside the path's callbacks. */
#ifndef IBT_ABSENT_H
#define IBT_ABSENT_H

#include "ibt/ibt.h"

/* Tells an RC requester on a reliable path that nobody is there, or receiving, or that the request
 * will not be answered: its timeout begins. Without room it is told later. */
void absent_say(struct path_dest *from, const struct pkt *p);
/* Tells what is still to be told, as far as there is room. */
void absent_tell(struct path_dest *from);

static inline bool absent_is_owed(const struct path_dest *from)
{
	return from->absent.count != 0 || from->absent.all;
}

#endif
