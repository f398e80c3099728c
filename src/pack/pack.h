/* pack.h: headers and records between structures and bytes.
 *
 * The calls are those of include/rdma/: tables of fields and the headers of a datagram (ib_pack.h),
 * the records of subnet administration (ib_sa.h), and the structures in which the kernel's user
 * programs see attributes and paths (ib_marshall.h). Pure functions: any thread, no lock.
 *
 *     field.c   a table's fields between a structure and bytes
 * ud_header.c   the headers of a datagram
 *        sa.c   records of subnet administration
 *  marshall.c   attributes and paths as user programs of the kernel see them
 */
#ifndef PACK_PACK_H
#define PACK_PACK_H

#include <rdma/ib_pack.h>

#include "base/compiler.h"

/* A line of a table of fields: a member of TYPE, which the file defines; the word in which it
 * begins, its first bit there, its width. */
#define PACK_FIELD(member, word, bit, bits)                                                        \
	{ offsetof(TYPE, member), sizeof(((TYPE *)NULL)->member), word, bit, bits, #member }
/* Bits that are zero. */
#define PACK_RESERVED(word, bit, bits)                                                             \
	{ .offset_words = (word), .offset_bits = (bit), .size_bits = (bits), RESERVED }

#endif
