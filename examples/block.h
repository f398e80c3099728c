/* block.h: what a block target and its initiators send each other. All numbers are big-endian.
 *
 * The initiator connects with a struct block_hello and is accepted with a struct block_welcome. It
 * SENDs commands, at most `depth` at a time, and gets a reply for each. A command's data lies in
 * its memory under `rkey`, which the target READs or WRITEs; the reply invalidates that key.
 */
#ifndef BLOCK_H
#define BLOCK_H

#include <linux/types.h>

enum { BLOCK_SECTOR = 512, BLOCK_MAX = 65536 /* bytes of a command */, BLOCK_DEPTH_MAX = 128 };
enum { BLOCK_READ = 1, BLOCK_WRITE = 2 }; /* from and to the device */

struct block_hello {
	__be16 depth; /* 1 to BLOCK_DEPTH_MAX */
};

struct block_welcome {
	__be64 sectors; /* the size of the device */
};

struct block_command {
	__be64 sector;
	__be64 addr;
	__be32 rkey;
	__be32 length; /* bytes: a multiple of BLOCK_SECTOR, BLOCK_MAX at most */
	__be16 tag;    /* the reply repeats it */
	u8 opcode;
	u8 unused[5];
};

struct block_reply {
	__be16 tag;
	__be16 error; /* 0, or an errno */
};

#endif
