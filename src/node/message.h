/* message.h: one packet with descriptors over a SOCK_SEQPACKET socket. */
#ifndef NODE_MESSAGE_H
#define NODE_MESSAGE_H

#include "node/protocol.h"

/* A received packet. The descriptors are the receiver's until message_close; -1 where taken. */
struct message {
	size_t size;
	int fds[PROTO_FDS];
	int fd_count;
	/* some could not be received: more than PROTO_FDS, or no descriptors left in this
	 * process */
	bool fds_lost;
} OWNED_BY(the receiver);

/* Sends the whole packet without waiting and without SIGPIPE: 0 or a negative errno. */
int message_send(int fd, const void *data, size_t size, const int *fds, int fd_count);
/* Takes a packet without waiting. 0 and *m; -EAGAIN; -ECONNRESET at the end of the connection;
 * -EMSGSIZE (packet consumed, descriptors closed) if it is larger than `capacity`. */
int message_receive(int fd, void *data, size_t capacity, struct message *m);
/* Gives the descriptors numbers of the library's own (base/fd.h). */
void message_own(struct message *m);
/* Waits until fd is readable: 0, -ETIMEDOUT. Goes on after signals. */
int message_wait(int fd, u64 deadline_ns);
/* Closes the descriptors that were not taken. */
void message_close(struct message *m);
/* Passes the descriptor at `index` to the caller. */
int message_take_fd(struct message *m, int index);

#endif
