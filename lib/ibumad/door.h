/* door.h: what the files of libibumad share.
 *
 * The door turns names and numbers of ports into files of the stack's umad (umad/umad.h), and the
 * midlayer's attributes into libibumad's. Inside the stack errors are negative errno; here calls
 * return a negative errno, too, as the man pages say, and set errno.
 */
#ifndef IBUMAD_DOOR_H
#define IBUMAD_DOOR_H

#include <errno.h>
#include <infiniband/umad.h>

#include "base/compiler.h"
#include "umad/umad.h"

enum { DOOR_STATE_ACTIVE = 4, DOOR_PHYS_DISABLED = 3 };

/* Sets errno to that of a negative result, which it returns. */
static inline int door_result(int result)
{
	if (result < 0)
		errno = -result;
	return result;
}

/* Copies a string; one that is too long is cut. */
void door_copy(char *to, size_t size, const char *from);

/* ---- ca.c: 0 or a negative errno ---- */
/* The CA by name. umad_release_ca frees it. */
int ca_read(const char *name, umad_ca_t *out);
bool ca_port_is_infiniband(const umad_port_t *port);
/* N of the port's umadN and issmN, as the sysfs tree has it. -EINVAL: there is none. */
int ca_port_number(const char *name, int portnum);

/* ---- pick.c ---- */
/* The CA and the port that a program means by a name (NULL or "": any) and a number (0: any):
 * one that is active, else one that is not disabled. Writes both. -ENODEV: there is none. */
int pick_port(const char *name, int portnum, char ca[UMAD_CA_NAME_LEN], int *port);

#endif
