/* linkname.h: what the alias of an IPoIB interface's device says: which port it is, and its
 * hardware address. A TUN device has no link address of 20 bytes; an alias goes with the device.
 */
#ifndef HOST_LINKNAME_H
#define HOST_LINKNAME_H

#include "base/compiler.h"

enum { LINKNAME_ADDRESS = 20, LINKNAME_BYTES = 192, LINKNAME_TEXT = 48 };

struct linkname {
	char host[LINKNAME_TEXT], device[LINKNAME_TEXT];
	u8 port;
	u8 address[LINKNAME_ADDRESS];
} OWNED_BY(the caller);

/* Writes "IPoIB 00:00:48:...:03 port 1 of ib0 on h1"; blanks of the texts become '_'. */
void linkname_write(const struct linkname *name, char out[LINKNAME_BYTES]);
/* Reads an alias of `size` bytes of any content. False: it is another one. */
bool linkname_read(const char *text, size_t size, struct linkname *out);

#endif
