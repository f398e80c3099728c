/* pcapng.h: a file that Wireshark reads. */
#ifndef ANYVERBS_PCAPNG_H
#define ANYVERBS_PCAPNG_H

#include <stdio.h>

#include "capture/capture.h"

/* Writes the section's and the interface's blocks: frames of `device` follow, with nanoseconds. */
void pcapng_begin(FILE *out, const char *device, const char *description, u32 snaplen);
/* time_ns: since 1970. */
void pcapng_frame(FILE *out, const struct frame *f, u64 time_ns);
/* Writes the counts of captured and dropped frames. */
void pcapng_end(FILE *out, u64 time_ns, u64 received, u64 dropped);

#endif
