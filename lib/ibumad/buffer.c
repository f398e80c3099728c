/* buffer.c: the header of a buffer, and what the library says of itself.
 * In:    buffers    Out: their fields; text on standard error
 * Runs:  the application's threads    Locks: none
 */
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "door.h"

static int buffer_debug ATOMIC_ONLY;

AV_EXPORT int umad_init(void)
{
	return 0;
}

AV_EXPORT int umad_done(void)
{
	return 0;
}

/* ---- fields ---------------------------------------------------------------------------------- */

AV_EXPORT void *umad_get_mad(void *umad)
{
	return ((struct ib_user_mad *)umad)->data;
}

AV_EXPORT size_t umad_size(void)
{
	return sizeof(struct ib_user_mad);
}

AV_EXPORT int umad_status(void *umad)
{
	return (int)((struct ib_user_mad *)umad)->status;
}

AV_EXPORT ib_mad_addr_t *umad_get_mad_addr(void *umad)
{
	return &((struct ib_user_mad *)umad)->addr;
}

AV_EXPORT int umad_set_grh(void *umad, void *mad_addr)
{
	const ib_mad_addr_t *from = mad_addr;
	ib_mad_addr_t *to = umad_get_mad_addr(umad);

	to->grh_present = from != NULL;
	if (from == NULL)
		return 0;
	memcpy(to->gid, from->gid, sizeof(to->gid));
	to->flow_label = htobe32(from->flow_label);
	to->hop_limit = from->hop_limit;
	to->traffic_class = from->traffic_class;
	return 0;
}

AV_EXPORT int umad_set_addr_net(void *umad, __be16 dlid, __be32 dqp, int sl, __be32 qkey)
{
	ib_mad_addr_t *to = umad_get_mad_addr(umad);

	to->qpn = dqp;
	to->lid = dlid;
	to->sl = (uint8_t)sl;
	to->qkey = qkey;
	return 0;
}

AV_EXPORT int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey)
{
	return umad_set_addr_net(umad, htobe16((uint16_t)dlid), htobe32((uint32_t)dqp), sl,
				 htobe32((uint32_t)qkey));
}

AV_EXPORT int umad_set_pkey(void *umad, int pkey_index)
{
	umad_get_mad_addr(umad)->pkey_index = (uint16_t)pkey_index;
	return 0;
}

AV_EXPORT int umad_get_pkey(void *umad)
{
	return umad_get_mad_addr(umad)->pkey_index;
}

/* ---- for whoever looks for a fault ----------------------------------------------------------- */

AV_EXPORT int umad_debug(int level)
{
	if (level >= 0)
		__atomic_store_n(&buffer_debug, level, __ATOMIC_RELAXED);
	return __atomic_load_n(&buffer_debug, __ATOMIC_RELAXED);
}

static void buffer_say(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void buffer_say(const char *fmt, ...)
{
	char text[512];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (n > 0 && write(STDERR_FILENO, text, MIN((size_t)n, sizeof(text) - 1)) < 0)
		return; /* nobody reads it */
}

AV_EXPORT void umad_addr_dump(ib_mad_addr_t *addr)
{
	char gid[2 * sizeof(addr->gid) + 1];

	for (size_t i = 0; i < sizeof(addr->gid); i++)
		snprintf(gid + 2 * i, 3, "%02x", addr->gid[i]);
	buffer_say("umad_addr_dump: qpn %u qkey 0x%x lid %u sl %u\n"
		   "grh_present %u gid_index %u hop_limit %u traffic_class %u flow_label 0x%x "
		   "pkey_index 0x%x\nGid 0x%s\n",
		   be32toh(addr->qpn), be32toh(addr->qkey), be16toh(addr->lid), addr->sl,
		   addr->grh_present, addr->gid_index, addr->hop_limit, addr->traffic_class,
		   be32toh(addr->flow_label), addr->pkey_index, gid);
}

AV_EXPORT void umad_dump(void *umad)
{
	const struct ib_user_mad *mad = umad;

	buffer_say("umad_dump: agent id %u status %x timeout %u\n", mad->agent_id, mad->status,
		   mad->timeout_ms);
	umad_addr_dump(umad_get_mad_addr(umad));
}
