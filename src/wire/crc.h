/* crc.h: the CRC-32 of Ethernet (reflected 0x04c11db7, all ones before and after). */
#ifndef WIRE_CRC_H
#define WIRE_CRC_H

#include "base/compiler.h"

/* Without x^32; x^31 is in bit 0. */
#define CRC_POLYNOMIAL 0xedb88320u

/* The CRC of what `crc` is the CRC of (0: of nothing), followed by these bytes. The first call also
 * finds out which way is the faster one here, which takes some microseconds. Any thread. */
u32 crc_add(u32 crc, const void *data, u32 bytes);

/* The two ways. The tables of the second are there after the first crc_add. */
u32 crc_add_isal(u32 crc, const void *data, u32 bytes);
u32 crc_add_tables(u32 crc, const void *data, u32 bytes);

#endif
