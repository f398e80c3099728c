/* unaligned.h: integers at any address. */
#ifndef ANYVERBS_ASM_UNALIGNED_H
#define ANYVERBS_ASM_UNALIGNED_H

#include <asm/byteorder.h>
#include <linux/types.h>

#define get_unaligned(pointer)                                                                     \
	({                                                                                         \
		struct {                                                                           \
			__typeof__(*(pointer)) value;                                              \
		} __attribute__((__packed__)) const *anyverbs_at = (const void *)(pointer);        \
		anyverbs_at->value;                                                                \
	})
#define put_unaligned(value, pointer)                                                              \
	do {                                                                                       \
		__typeof__(*(pointer)) anyverbs_copy = (value);                                    \
		__builtin_memcpy((void *)(pointer), &anyverbs_copy, sizeof(anyverbs_copy));        \
	} while (0)

#define ANYVERBS_UNALIGNED(name, type, to, from)                                                   \
	static inline type get_unaligned_##name(const void *pointer)                               \
	{                                                                                          \
		type value;                                                                        \
		__builtin_memcpy(&value, pointer, sizeof(value));                                  \
		return to(value);                                                                  \
	}                                                                                          \
	static inline void put_unaligned_##name(type value, void *pointer)                         \
	{                                                                                          \
		value = from(value);                                                               \
		__builtin_memcpy(pointer, &value, sizeof(value));                                  \
	}

ANYVERBS_UNALIGNED(be16, u16, be16_to_cpu, cpu_to_be16)
ANYVERBS_UNALIGNED(be32, u32, be32_to_cpu, cpu_to_be32)
ANYVERBS_UNALIGNED(be64, u64, be64_to_cpu, cpu_to_be64)
ANYVERBS_UNALIGNED(le16, u16, le16_to_cpu, cpu_to_le16)
ANYVERBS_UNALIGNED(le32, u32, le32_to_cpu, cpu_to_le32)
ANYVERBS_UNALIGNED(le64, u64, le64_to_cpu, cpu_to_le64)
#undef ANYVERBS_UNALIGNED

static inline u32 get_unaligned_be24(const void *pointer)
{
	const u8 *bytes = pointer;

	return (u32)bytes[0] << 16 | (u32)bytes[1] << 8 | bytes[2];
}

static inline void put_unaligned_be24(u32 value, void *pointer)
{
	u8 *bytes = pointer;

	bytes[0] = (u8)(value >> 16);
	bytes[1] = (u8)(value >> 8);
	bytes[2] = (u8)value;
}

static inline u32 get_unaligned_le24(const void *pointer)
{
	const u8 *bytes = pointer;

	return (u32)bytes[2] << 16 | (u32)bytes[1] << 8 | bytes[0];
}

static inline void put_unaligned_le24(u32 value, void *pointer)
{
	u8 *bytes = pointer;

	bytes[2] = (u8)(value >> 16);
	bytes[1] = (u8)(value >> 8);
	bytes[0] = (u8)value;
}

#endif
