/* umad.h: MADs for programs: what the kernel's ib_umad is. An open *file* of a port has agents,
 * sends MADs for them, and keeps what they receive until the program reads it.
 *
 * A buffer is a struct ib_user_mad_hdr of <rdma/ib_user_mad.h>, which is libibumad's struct
 * ib_user_mad, and the MAD or RMPP message behind it, as read() and write() of
 * /dev/infiniband/umadN have it.
 *
 * Results: 0 or a positive number, else a negative errno. Unless it says so a call does not block.
 * Any thread, several at once; but not while the file is closed.
 */
#ifndef UMAD_UMAD_H
#define UMAD_UMAD_H

#include <rdma/ib_mad.h>
#include <sys/types.h>

enum {
	UMAD_HEADER = 64,	/* bytes */
	UMAD_AGENTS = 32,	/* of one file */
	UMAD_WAITING = 200000, /* received MADs that wait in one file; what comes then is lost */
};

struct umad_file;

/* What an agent is registered with. Bit m of the mask: method m. */
struct umad_agent_attr {
	bool smi; /* QP0, else QP1 */
	u8 mgmt_class; /* 0: it receives answers only */
	u8 mgmt_class_version;
	u8 oui[3];
	u8 rmpp_version;
	bool user_rmpp; /* the program deals with RMPP whatever the version */
	u64 method_mask[2];
} OWNED_BY(the caller);

/* Opens a port. May block. -ENODEV: no such device; -EINVAL: it has no such port. */
AV_EXPORT int umad_file_open(const char *device, u8 port_num, struct umad_file **out);
/* Has every call that is inside the file end with -EIO, and every later one but close. */
AV_EXPORT void umad_file_shut(struct umad_file *f);
/* Ends all agents and frees the file. Threads inside other calls must have left. May block. */
AV_EXPORT void umad_file_close(struct umad_file *f);
/* A descriptor that is readable while the file has a MAD to read, and when its device is gone. */
AV_EXPORT int umad_file_fd(const struct umad_file *f);

/* Registers an agent: its number. May block. -ENOMEM: UMAD_AGENTS exist; -EIO: the device is gone;
 * or as ib_register_mad_agent. */
AV_EXPORT int umad_file_register(struct umad_file *f, const struct umad_agent_attr *attr);
/* Ends an agent and what it sends. What it has received stays to be read. May block. -EINVAL: there
 * is no such agent. */
AV_EXPORT int umad_file_unregister(struct umad_file *f, u32 id);

/* Sends the MAD behind the header to the address in the header, for the agent hdr->id. `bytes`
 * counts both. With timeout_ms a request: it ends with the answer or, after 1 + retries timeouts,
 * as a MAD to read whose status is ETIMEDOUT, of which only the first 24 bytes are there. As
 * numbers with a sign both may be negative: without end. -EINVAL: lengths, the agent, the address,
 * or a request of this transaction ID and class is outstanding; -EIO: the device is gone; or as
 * ib_create_ah, ib_create_send_mad, ib_post_send_mad. */
AV_EXPORT int umad_file_write(struct umad_file *f, const void *buf, size_t bytes);

/* Takes the oldest MAD: its bytes, with the header's. -EAGAIN: none waits. -ENOSPC: it does not
 * fit; it stays, and the header and as much of its first MAD as fits have been copied; hdr->length
 * is what it needs. -EINVAL: not even the header fits. -EIO: the device is gone. */
AV_EXPORT ssize_t umad_file_read(struct umad_file *f, void *buf, size_t bytes);
/* Waits until a MAD can be read, for at most timeout_ms (negative: for ever); a cancellation point.
 * 0, also if the device is gone; -ETIMEDOUT; -EINTR. */
AV_EXPORT int umad_file_wait(struct umad_file *f, int timeout_ms);
/* Called when a read has said that the device is gone: waits 0.1 s, but not the first time, for a
 * program that reads on all the same; a cancellation point. */
AV_EXPORT void umad_file_rest(struct umad_file *f);

/* What open() of /dev/infiniband/issmN is: a descriptor, close-on-exec; while it or a copy of it is
 * open, the port is a subnet manager's. May block. -ENODEV: no such device; -EINVAL: it has no such
 * port; -ENXIO: its ports have no subnet manager; -EBUSY: it is another one's. */
AV_EXPORT int umad_open_sm(const char *device, u8 port_num);

#endif
