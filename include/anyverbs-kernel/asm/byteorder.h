/* byteorder.h: between the processor's byte order and big or little endian. None of this blocks. */
#ifndef ANYVERBS_ASM_BYTEORDER_H
#define ANYVERBS_ASM_BYTEORDER_H

#include_next <asm/byteorder.h>

#include <arpa/inet.h>

#define cpu_to_be16(n) __cpu_to_be16(n)
#define cpu_to_be32(n) __cpu_to_be32(n)
#define cpu_to_be64(n) __cpu_to_be64(n)
#define be16_to_cpu(n) __be16_to_cpu(n)
#define be32_to_cpu(n) __be32_to_cpu(n)
#define be64_to_cpu(n) __be64_to_cpu(n)
#define cpu_to_le16(n) __cpu_to_le16(n)
#define cpu_to_le32(n) __cpu_to_le32(n)
#define cpu_to_le64(n) __cpu_to_le64(n)
#define le16_to_cpu(n) __le16_to_cpu(n)
#define le32_to_cpu(n) __le32_to_cpu(n)
#define le64_to_cpu(n) __le64_to_cpu(n)
#define be16_to_cpup(pointer) __be16_to_cpup(pointer)
#define be32_to_cpup(pointer) __be32_to_cpup(pointer)
#define be64_to_cpup(pointer) __be64_to_cpup(pointer)

#endif
