/* raw.h: whole Ethernet frames on an interface of the host, by AF_PACKET sockets.
 *
 * One instance for an adapter's port. It needs CAP_NET_RAW (and CAP_NET_ADMIN before Linux 5.17).
 * Frames of this instance come back to no receiver of this instance: who has receivers of its own
 * for a frame that it sends hands it to them itself. Frames of other instances of the same node
 * (struct raw_config.mark) come as from the wire; of what else the host sends nothing comes, but
 * for the loopback interface, where everything that is sent arrives.
 *
 *   raw.c     opening, sending, the receiving thread's loop
 *   filter.c  the kernel's filter in front of the receiving socket
 */
#ifndef PATH_RAW_RAW_H
#define PATH_RAW_RAW_H

#include "base/compiler.h"

enum {
	/* Low bits of a mark: which instance of a node. The others: which node. */
	RAW_MARK_SLOTS = 0x3ff,
	RAW_FRAME_MAX = 65536 + 64, /* bytes of a frame: a loopback interface has such */
};

struct raw;

struct raw_config {
	u32 ifindex;
	/* Of every frame that this instance sends, in the kernel's struct sk_buff. Two instances
	 * of one node differ in RAW_MARK_SLOTS only. */
	u32 mark;
	/* A frame has arrived, without FCS. On the thread in raw_run. */
	void (*receive)(void *arg, const u8 *frame, u32 length);
	/* raw_send has answered -EAGAIN, and there may be room now. On the thread in raw_run. */
	void (*writable)(void *arg);
	void *arg;
} OWNED_BY(the caller);

/* Opens the sending socket. 0; -EPERM: the process may not; -ENODEV: no such interface, or not of
 * Ethernet frames; -EOPNOTSUPP: the kernel has no packet sockets; -EMFILE, -ENOMEM and so on. May
 * block. */
int raw_open(const struct raw_config *cfg, struct raw **out);
/* Ends raw_run, waits until it has returned (if `runs`), and frees. May block. */
void raw_close(struct raw *raw, bool runs);
/* In a forked child, whose parent has the thread: closes the descriptors and frees. */
void raw_drop_in_child(struct raw *raw);
/* Begins or ends to receive; the interface is promiscuous meanwhile. 0 or a negative errno, and
 * nothing has changed. May block. */
int raw_listen(struct raw *raw, bool on);
/* Receives until raw_close; for a thread of its own. */
void raw_run(struct raw *raw);
/* Sends one frame, without FCS. 0; -EAGAIN: no room, writable() follows; -EMSGSIZE: longer than
 * the interface takes; another errno: the frame is lost (no link, the interface has gone). Never
 * blocks; any thread. */
int raw_send(struct raw *raw, const u8 *frame, u32 length);

#endif
