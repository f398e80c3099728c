/* env.h: what the user says by ANYVERBS_* variables.
 *
 * An empty value is none. One that means nothing counts as not set, and is logged as an error, with
 * the variable's name and what it takes; the command `anyverbs` says so unasked, by the same
 * judgement (tools/anyverbs/settings.c). None of these blocks.
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include "base/compiler.h"

/* The value; NULL: not set, or empty. */
AV_EXPORT const char *env_text(const char *name);
/* 0 or 1. */
AV_EXPORT bool env_is_on(const char *name, bool otherwise);
/* A whole number from 0 to `most`. */
AV_EXPORT u32 env_number(const char *name, u32 most, u32 otherwise);
/* Words of `words` (NULL at the end; 32 at most), between commas or blanks: a bit for each. */
AV_EXPORT u32 env_words(const char *name, const char *const *words, u32 otherwise);
/* Seconds with a fraction, in ns; UINT64_MAX: "never", or more than 1e9. */
AV_EXPORT u64 env_seconds(const char *name, u64 otherwise_ns);
/* Says that what `name` is set to means nothing, and that it takes `what`. */
AV_EXPORT void env_refuse(const char *name, const char *value, const char *what);

/* ---- what a value means, not an empty one: false if nothing, *out is then as before ---- */

AV_EXPORT bool env_means_switch(const char *value, bool *out);
AV_EXPORT bool env_means_number(const char *value, u32 most, u32 *out);
AV_EXPORT bool env_means_words(const char *value, const char *const *words, u32 *out);
AV_EXPORT bool env_means_seconds(const char *value, u64 *out_ns);
/* Numbers from 1 to 65535 between commas or blanks, or "all". *named: `port` is among them. */
AV_EXPORT bool env_means_ports(const char *value, u16 port, bool *named);

#endif
