/* pcapng.h: a file that Wireshark reads. */
#ifndef ANYVERBS_PCAPNG_H
#define ANYVERBS_PCAPNG_H

#include <stdio.h>

#include "capture/capture.h"

/* Writes the section's block. */
void pcapng_begin(FILE *out);
/* Writes an interface's block: frames that begin with that link layer's headers, with nanoseconds.
 * Interfaces have the numbers 0, 1, ... in the order in which they are written. */
void pcapng_interface(FILE *out, enum frame_link link, const char *device, const char *description,
		      u32 snaplen);
/* time_ns: since 1970. */
void pcapng_frame(FILE *out, u32 interface, const struct frame *f, u64 time_ns);
/* Writes the counts of an interface's captured and dropped frames. */
void pcapng_end(FILE *out, u32 interface, u64 time_ns, u64 received, u64 dropped);

#endif
