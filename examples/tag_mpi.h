/* tag_mpi.h: what a program needs of the small MPI in tag_mpi.c: ranks that send each
 * other messages with tags, and receive them by source and tag, either of which may be ANY.
 */
#ifndef TAG_MPI_H
#define TAG_MPI_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	MAX_RANKS = 64,
	EAGER = 8192,	   /* payload of a message that goes at once */
	HEADER = 32,	   /* TMH and RVH */
	BUFFERS = 64,	   /* ordinary ones, for what is unexpected */
	SENDS = 8,	   /* messages of a rank that are not done yet, to each other rank */
	MAX_OPS = 256,	   /* list operations that are not done yet */
	ANY = -1,	   /* source or tag of a receive */
};

/* What the operator says. */
struct options {
	long ranks, messages, gid, port, seed, bytes;
	const char *trace, *host;
};

/* A receive: posted to the adapter, or given to a message that had come before it. */
struct receive {
	struct receive *prev, *next; /* those that wait, in the order of posting */
	uint32_t id, handle;
	int source, tag;
	uint32_t length;
	uint8_t *bytes;
	struct ibv_mr *mr;
	bool waits, cancelling;
	uint64_t message; /* what it has taken: source << 32, number */
};

/* A message that is being sent, or a rendezvous' data that this program reads itself. */
struct transfer {
	int peer;
	uint32_t id, number, length; /* number: of the message among its sender's */
	uint8_t header[HEADER];
	uint8_t *bytes;
	struct ibv_mr *mr, *header_mr;
	bool sent, read; /* the SEND, and a rendezvous' data, are done */
	struct receive *receive; /* of one that this program reads */
};

struct counts {
	uint32_t receive_count, receives_done, receives_cancelled;
	uint32_t arrived, unexpected_count; /* all that ever came: the adapter counts, too */
	uint32_t transfers_open, ops_open, sends_open[MAX_RANKS];
};

extern struct options opt;
extern int rank;	      /* of this process */
extern struct receive posted; /* the list of those that wait */
extern struct counts counts;
extern FILE *trace; /* what happens is noted here; NULL: nowhere */

/* ---- tag_mpi.c ---- */

/* A device, a tag-matching SRQ, and memory for so many messages and receives. */
void adapter_open(void);
void adapter_close(void);
/* A queue pair to every other rank. */
void ranks_connect(void);
/* A receive of at most `length` bytes; receive_done is called when it has its message. */
void receive_post(int source, int tag, uint32_t length);
/* It is taken off the lists, unless a message has it by then. */
void receive_cancel(struct receive *r);
/* Gives back its memory. */
void receive_free(struct receive *r);
bool receive_matches(const struct receive *r, uint64_t tag);
/* A message to be filled (t->bytes) and sent, which gives it up. */
struct transfer *transfer_new(int peer, uint32_t length);
void message_send(struct transfer *t, int tag);
/* Handles what has completed. */
void progress(void);
/* Has any message come that no receive has taken? */
bool is_unexpected(void);
uint64_t tag_of(int source, int tag);

/* ---- the program: tag_ranks.c ---- */

/* r->bytes has the message r->message. */
void receive_done(struct receive *r, uint32_t length);
/* Each rank gives a record and gets those of all, in the order of ranks. */
void gather(const void *mine, size_t size, void *all);
void die(const char *fmt, ...);
void must(int ok, const char *what);
/* Zeroed. */
void *new(size_t size);

#endif
