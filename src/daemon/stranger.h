/* stranger.h: closes what comes from another user. */
#ifndef DAEMON_STRANGER_H
#define DAEMON_STRANGER_H

#include <stdbool.h>

/* Tells whether another socket may be given away. False: for a moment. */
bool stranger_has_room(void);
/* Closes the socket, or has a thread close it. Does not wait for what lies in its queue, unless the
 * system has no thread. */
void stranger_close(int fd);

#endif
