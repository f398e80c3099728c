/* stream_wire.h: what the protocol of stream rsockets has on the wire, for tests that speak it by
 * verbs. */
#ifndef RDMACM_STREAM_WIRE_H
#define RDMACM_STREAM_WIRE_H

#include <stdint.h>

struct sge {
	uint64_t addr;
	uint32_t key, length;
};

/* The private data of a connection, in network order. */
struct hello {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t reserved[3], places;
	struct sge table, buffer;
};

#endif
