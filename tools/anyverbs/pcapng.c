/* pcapng.c: writes blocks of the pcapng format (draft-ietf-opsawg-pcapng).
 *
 * InfiniBand has a link type of its own, 247, which Wireshark 4.0 does not know. It knows records
 * of Endace's extensible record format with such packets in them: each has that header here.
 * In:    frames               Out: a stream; its error flag says whether all was written
 * Runs:  the only thread      Locks: none
 */
#include "pcapng.h"

#include <endian.h>
#include <string.h>

#include "base/clock.h"

enum { BLOCK_SECTION = 0x0a0d0d0a, BLOCK_INTERFACE = 1, BLOCK_STATISTICS = 5, BLOCK_PACKET = 6 };
enum { BYTE_ORDER_MAGIC = 0x1a2b3c4d, NANOSECONDS = 9 };
enum { LINK_ETHERNET = 1, LINK_ERF = 197 };
/* A record of ERF: time, type, flags, its length, a loss counter, the packet's length. */
enum { ERF_HEADER = 16, ERF_INFINIBAND = 21, ERF_VARYING = 4 };
enum {
	OPTION_END = 0,
	OPTION_COMMENT = 1,
	OPTION_FLAGS = 2,    /* of a packet */
	OPTION_NAME = 2,     /* of an interface */
	OPTION_DESCRIPTION = 3,
	OPTION_PROGRAM = 4,  /* of a section */
	OPTION_RECEIVED = 4, /* of the statistics */
	OPTION_DROPPED = 5,
	OPTION_RESOLUTION = 9,
	BLOCK_MAX = 8192,
};
enum { FLAG_INBOUND = 1, FLAG_OUTBOUND = 2 };

_Static_assert(ERF_HEADER + FRAME_MAX + 1024 < BLOCK_MAX,
	       "a frame with its options fits into a block");

/* A block while it is made. */
struct block {
	u32 bytes;
	u8 data[BLOCK_MAX];
};

static void block_add(struct block *b, const void *data, u32 bytes)
{
	memcpy(b->data + b->bytes, data, bytes);
	b->bytes += bytes;
	while (b->bytes % 4 != 0)
		b->data[b->bytes++] = 0;
}

static void block_add32(struct block *b, u32 value)
{
	block_add(b, &value, sizeof(value));
}

/* Type and total length, which is set at the end. */
static void block_begin(struct block *b, u32 type)
{
	b->bytes = 0;
	block_add32(b, type);
	block_add32(b, 0);
}

static void block_option(struct block *b, u16 code, const void *value, u16 length)
{
	u16 head[2] = { code, length };

	block_add(b, head, sizeof(head));
	block_add(b, value, length);
}

static void block_text(struct block *b, u16 code, const char *text)
{
	block_option(b, code, text, (u16)MIN(strlen(text), (size_t)512));
}

static void block_write(struct block *b, FILE *out)
{
	u32 total;

	block_option(b, OPTION_END, "", 0);
	total = b->bytes + 4;
	memcpy(b->data + 4, &total, sizeof(total));
	block_add32(b, total);
	fwrite(b->data, 1, b->bytes, out);
}

static void block_time(struct block *b, u64 time_ns)
{
	block_add32(b, (u32)(time_ns >> 32));
	block_add32(b, (u32)time_ns);
}

void pcapng_begin(FILE *out)
{
	u64 unknown_length = UINT64_MAX;
	u16 version[2] = { 1, 0 };
	struct block b;

	block_begin(&b, BLOCK_SECTION);
	block_add32(&b, BYTE_ORDER_MAGIC);
	block_add(&b, version, sizeof(version));
	block_add(&b, &unknown_length, sizeof(unknown_length));
	block_text(&b, OPTION_PROGRAM, "anyverbs " AV_VERSION);
	block_write(&b, out);
}

void pcapng_interface(FILE *out, enum frame_link link, const char *device, const char *description,
		      u32 snaplen)
{
	u16 type[2] = { link == FRAME_LINK_INFINIBAND ? LINK_ERF : LINK_ETHERNET, 0 };
	u8 resolution = NANOSECONDS;
	struct block b;

	block_begin(&b, BLOCK_INTERFACE);
	block_add(&b, type, sizeof(type));
	block_add32(&b, snaplen);
	block_text(&b, OPTION_NAME, device);
	block_text(&b, OPTION_DESCRIPTION, description);
	block_option(&b, OPTION_RESOLUTION, &resolution, 1);
	block_write(&b, out);
}

/* Its clock counts seconds in 2^-32, least significant byte first; all else is big endian. */
static void block_add_erf(struct block *b, const struct frame *f, u64 time_ns)
{
	u64 time = htole64(time_ns / NS_PER_S << 32 | (time_ns % NS_PER_S << 32) / NS_PER_S);
	u8 head[ERF_HEADER] = { [8] = ERF_INFINIBAND, [9] = ERF_VARYING };
	u16 record = htobe16((u16)(ERF_HEADER + f->kept)), length = htobe16((u16)f->length);

	memcpy(head, &time, sizeof(time));
	memcpy(head + 10, &record, sizeof(record));
	memcpy(head + 14, &length, sizeof(length));
	memcpy(b->data + b->bytes, head, sizeof(head));
	b->bytes += ERF_HEADER;
}

void pcapng_frame(FILE *out, u32 interface, const struct frame *f, u64 time_ns)
{
	u32 flags = f->inbound ? FLAG_INBOUND : FLAG_OUTBOUND;
	u32 more = f->link == FRAME_LINK_INFINIBAND ? ERF_HEADER : 0;
	struct block b;

	block_begin(&b, BLOCK_PACKET);
	block_add32(&b, interface);
	block_time(&b, time_ns);
	block_add32(&b, more + f->kept);
	block_add32(&b, more + f->length);
	if (more != 0)
		block_add_erf(&b, f, time_ns);
	block_add(&b, f->data, f->kept);
	block_option(&b, OPTION_FLAGS, &flags, sizeof(flags));
	if (f->comment != NULL)
		block_text(&b, OPTION_COMMENT, f->comment);
	block_write(&b, out);
}

void pcapng_end(FILE *out, u32 interface, u64 time_ns, u64 received, u64 dropped)
{
	struct block b;

	block_begin(&b, BLOCK_STATISTICS);
	block_add32(&b, interface);
	block_time(&b, time_ns);
	block_option(&b, OPTION_RECEIVED, &received, sizeof(received));
	block_option(&b, OPTION_DROPPED, &dropped, sizeof(dropped));
	block_write(&b, out);
}
