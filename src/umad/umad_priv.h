/* umad_priv.h: inside the room.
 *
 *    file.c  files: open, close, removal of the device, fork
 *   agent.c  agents of a file
 *    send.c  MADs on their way out, and those that nobody answered
 *    read.c  MADs that have come, until the program reads them
 * address.c  the header of a buffer, and ib_*'s addresses
 *
 * umad_file.lock is taken by the program's calls and by handlers of the MAD layer, which hold no
 * lock; mad_lock is taken under it.
 */
#ifndef UMAD_UMAD_PRIV_H
#define UMAD_UMAD_PRIV_H

#include <rdma/ib_user_mad.h>

#include "base/cond.h"
#include "base/list.h"
#include "base/work.h"
#include "event/ready_fd.h"
#include "umad/umad.h"

_Static_assert(sizeof(struct ib_user_mad_hdr) == UMAD_HEADER, "the kernel's");

/* An address handle that sends share. */
struct umad_ah {
	struct ib_ah *ah FIXED;
	struct ib_ah_attr attr FIXED;
	u32 refs OWNED_BY(the lock of its file); /* sends with it; the file's own */
};

/* A MAD on its way out, or one that waits to be read. */
struct umad_packet {
	struct list_head node;
	struct umad_file *file;
	bool response; /* of one that was sent */
	struct ib_mad_recv_wc *recv; /* that has come; NULL: one that was sent */
	struct ib_mad_send_buf *buf; /* while it is on its way */
	struct umad_ah *way;	     /* likewise */
	struct ib_user_mad_hdr hdr;
	struct ib_mad_hdr mad; /* of one that was sent */
} OWNED_BY(the lock of its file);

enum umad_agent_state { UMAD_AGENT_FREE, UMAD_AGENT_MAKING, UMAD_AGENT_READY, UMAD_AGENT_ENDING };

struct umad_agent {
	struct umad_file *file FIXED;
	struct ib_mad_agent *mad OWNED_BY(the lock of its file);
	enum umad_agent_state state OWNED_BY(the lock of its file);
	u32 users OWNED_BY(the lock of its file); /* calls that send for it now */
	/* wakes the program; without a queue until a MAD has come */
	struct work tell OWNED_BY(the queue of the port);
};

struct umad_file {
	struct lock lock;
	struct list_head node OWNED_BY(umad_table.lock);
	struct ib_device *device FIXED;
	u8 port_num FIXED;
	struct ib_pd *pd OWNED_BY(umad_table.ending, or who closes it); /* of the address handles */
	struct ready_fd ready_fd FIXED;
	struct atfork_watch watch GUARDS_ITSELF;
	bool dead GUARDED_BY(lock); /* shut, the device is gone, or this is a forked child */
	bool told GUARDED_BY(lock); /* the descriptor is readable */
	bool told_dead GUARDED_BY(lock); /* a read has said so */
	struct cond calm GUARDED_BY(lock); /* an agent has no users, or the file no sends */
	struct umad_agent agents[UMAD_AGENTS] GUARDED_BY(lock);
	struct umad_ah *way GUARDED_BY(lock);	   /* the last one used; NULL: none */
	struct list_head sends GUARDED_BY(lock);   /* struct umad_packet */
	struct list_head waiting GUARDED_BY(lock); /* struct umad_packet, to be read */
	u32 waiting_mads GUARDED_BY(lock);
};

/* ---- agent.c ---- */
/* Ends every agent of a file that is dead or about to be closed. May block. */
void umad_agents_end(struct umad_file *f);

/* ---- send.c ---- */
/* Gives up the address handle that is kept for the next send. */
void umad_ah_forget(struct umad_file *f);
void umad_send_done(struct ib_mad_agent *mad, struct ib_mad_send_wc *wc);

/* ---- read.c ---- */
void umad_received(struct ib_mad_agent *mad, struct ib_mad_recv_wc *recv);
/* No handler runs for the agent any more: nor does its work from now on. May block. */
void umad_tell_end(struct umad_agent *agent);
/* Makes the descriptor readable if something waits or the file is dead, else not. */
void umad_queue_tell(struct umad_file *f) REQUIRES(f->lock);
/* Adds a packet to those that wait; umad_queue_tell says so. Takes it. */
void umad_queue(struct umad_file *f, struct umad_packet *p) REQUIRES(f->lock);
/* Frees all that wait. */
void umad_queue_clear(struct umad_file *f) REQUIRES(f->lock);

/* ---- address.c ---- */
struct ib_ah_attr umad_address_of(const struct ib_user_mad_hdr *hdr, u8 port_num);
bool umad_address_same(const struct ib_ah_attr *a, const struct ib_ah_attr *b);
/* The header of what has come from there. */
void umad_address_fill(struct ib_user_mad_hdr *hdr, const struct ib_mad_agent *agent,
		       const struct ib_mad_recv_wc *recv);

#endif
