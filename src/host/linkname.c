/* linkname.c: the alias of an IPoIB interface's device, as text and as fields.
 * In:    fields, text of a stranger    Out: text, fields
 * Runs:  any thread; pure functions    Locks: none
 */
#include "host/linkname.h"

#include <stdio.h>
#include <string.h>

#define LINKNAME_HEAD "IPoIB "

static void linkname_put_text(const char *text, char out[LINKNAME_TEXT])
{
	snprintf(out, LINKNAME_TEXT, "%s", text[0] != '\0' ? text : "_");
	for (char *c = out; *c != '\0'; c++)
		if (*c <= ' ' || *c > '~')
			*c = '_';
}

void linkname_write(const struct linkname *name, char out[LINKNAME_BYTES])
{
	char hex[3 * LINKNAME_ADDRESS + 1], host[LINKNAME_TEXT], device[LINKNAME_TEXT];

	for (u32 i = 0; i < LINKNAME_ADDRESS; i++)
		snprintf(hex + 3 * i, 4, "%02x:", name->address[i]);
	hex[3 * LINKNAME_ADDRESS - 1] = '\0';
	linkname_put_text(name->host, host);
	linkname_put_text(name->device, device);
	snprintf(out, LINKNAME_BYTES, LINKNAME_HEAD "%s port %u of %s on %s", hex, name->port,
		 device, host);
}

static bool linkname_read_address(const char *text, u8 out[LINKNAME_ADDRESS])
{
	for (u32 i = 0; i < LINKNAME_ADDRESS; i++) {
		unsigned int byte;
		int n = 0;

		if (sscanf(text + 3 * i, "%2x%n", &byte, &n) != 1 || n != 2 ||
		    text[3 * i + 2] != (i + 1 < LINKNAME_ADDRESS ? ':' : ' '))
			return false;
		out[i] = (u8)byte;
	}
	return true;
}

bool linkname_read(const char *text, size_t size, struct linkname *out)
{
	enum { HEAD = sizeof(LINKNAME_HEAD) - 1 };
	struct linkname name;
	char copy[LINKNAME_BYTES];
	unsigned int port;

	/* an address ends where the next word begins */
	if (size < HEAD + 3 * LINKNAME_ADDRESS || size >= sizeof(copy))
		return false;
	memcpy(copy, text, size);
	copy[size] = '\0';
	memset(&name, 0, sizeof(name));
	if (strncmp(copy, LINKNAME_HEAD, HEAD) != 0 ||
	    !linkname_read_address(copy + HEAD, name.address) ||
	    sscanf(copy + HEAD + 3 * LINKNAME_ADDRESS, "port %3u of %47s on %47s", &port,
		   name.device, name.host) != 3 ||
	    port < 1 || port > 255)
		return false;
	name.port = (u8)port;
	*out = name;
	return true;
}
