/* field.c: the fields of a table between a structure and bytes.
 * In:    tables, structures, bytes      Out: bytes, structures
 * Runs:  any thread                     Locks: none
 */
#include <endian.h>
#include <string.h>

#include "pack/pack.h"

enum { FIELD_WIDEST = 64 }; /* bits of a number; what is wider is bytes */

static u32 field_first_bit(const struct ib_field *f)
{
	return (u32)f->offset_words * 32 + (u32)f->offset_bits;
}

/* The number in a member of 1, 2, 4 or 8 bytes. */
static u64 field_member_get(const struct ib_field *f, const void *structure)
{
	const u8 *member = (const u8 *)structure + f->struct_offset_bytes;
	u64 value = 0;

	if (f->struct_size_bytes > sizeof(value))
		return 0;
	memcpy((u8 *)&value + sizeof(value) - f->struct_size_bytes, member, f->struct_size_bytes);
	return be64toh(value);
}

static void field_member_set(const struct ib_field *f, void *structure, u64 value)
{
	u8 *member = (u8 *)structure + f->struct_offset_bytes;
	u64 be = htobe64(value);

	if (f->struct_size_bytes <= sizeof(be))
		memcpy(member, (u8 *)&be + sizeof(be) - f->struct_size_bytes,
		       f->struct_size_bytes);
}

/* Bits are counted from the most significant one of the first byte. */
static void field_bits_set(u8 *buf, u32 first, u32 bits, u64 value)
{
	for (u32 left = bits; left > 0;) {
		u32 end = first + left, room = (end - 1) % 8 + 1, n = MIN(room, left);
		u8 mask = (u8)(((1u << n) - 1) << (8 - room));
		u8 *byte = buf + (end - 1) / 8;

		*byte = (u8)((*byte & ~mask) | ((u32)(value << (8 - room)) & mask));
		value >>= n;
		left -= n;
	}
}

static u64 field_bits_get(const u8 *buf, u32 first, u32 bits)
{
	u64 value = 0;

	for (u32 at = first, end = first + bits; at < end;) {
		u32 n = MIN(8 - at % 8, end - at);
		u32 byte = buf[at / 8] >> (8 - at % 8 - n);

		value = value << n | (byte & ((1u << n) - 1));
		at += n;
	}
	return value;
}

static void field_pack(const struct ib_field *f, const void *structure, u8 *buf)
{
	u32 first = field_first_bit(f), bytes = (u32)f->size_bits / 8;

	if (f->size_bits <= FIELD_WIDEST)
		field_bits_set(buf, first, (u32)f->size_bits,
			       f->struct_size_bytes ? field_member_get(f, structure) : 0);
	else if (f->struct_size_bytes != 0)
		memcpy(buf + first / 8, (const u8 *)structure + f->struct_offset_bytes, bytes);
	else
		memset(buf + first / 8, 0, bytes);
}

void ib_pack(const struct ib_field *desc, int desc_len, void *structure, void *buf)
{
	for (int i = 0; i < desc_len; i++)
		field_pack(&desc[i], structure, buf);
}

static void field_unpack(const struct ib_field *f, const u8 *buf, void *structure)
{
	u32 first = field_first_bit(f), bytes = (u32)f->size_bits / 8;

	if (f->size_bits <= FIELD_WIDEST)
		field_member_set(f, structure, field_bits_get(buf, first, (u32)f->size_bits));
	else
		memcpy((u8 *)structure + f->struct_offset_bytes, buf + first / 8, bytes);
}

void ib_unpack(const struct ib_field *desc, int desc_len, void *buf, void *structure)
{
	for (int i = 0; i < desc_len; i++)
		if (desc[i].struct_size_bytes != 0)
			field_unpack(&desc[i], buf, structure);
}
