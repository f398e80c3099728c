/* steer.c: reads the few fields of a MAD that name its process.
 * In:    MADs of any content    Out: a slot or a service ID
 * Runs:  any thread             Locks: none
 * Spec:  IBA vol 1, 13.4.2 (transaction ID), 12.6 (CM messages)
 */
#include "node/steer.h"

#include <endian.h>
#include <string.h>

static u32 steer_u32(const u8 *at)
{
	u32 word;

	memcpy(&word, at, sizeof(word));
	return be32toh(word);
}

static u64 steer_u64(const u8 *at)
{
	u64 word;

	memcpy(&word, at, sizeof(word));
	return be64toh(word);
}

static enum steer_by steer_cm(const u8 *mad, u32 *slot, u64 *service_id)
{
	u32 attribute = (u32)mad[STEER_ATTRIBUTE] << 8 | mad[STEER_ATTRIBUTE + 1];
	u32 at = attribute == STEER_CM_SIDR_REP ? STEER_LOCAL_ID : STEER_REMOTE_ID;

	if (attribute == STEER_CM_REQ || attribute == STEER_CM_SIDR_REQ) {
		*service_id = steer_u64(mad + STEER_SERVICE_ID);
		return STEER_BY_SERVICE;
	}
	*slot = steer_u32(mad + at) >> STEER_SLOT_SHIFT;
	return STEER_BY_SLOT;
}

/* A baseboard's responses are Sends, and marked in the attribute modifier. */
static bool steer_is_response(const u8 *mad)
{
	u8 method = mad[STEER_METHOD];

	return (method & STEER_METHOD_RESPONSE) != 0 || method == STEER_METHOD_TRAP_REPRESS ||
	       (mad[STEER_CLASS] == STEER_CLASS_BM &&
		(steer_u32(mad + STEER_MODIFIER) & STEER_BM_RESPONSE) != 0);
}

enum steer_by steer_mad(const u8 *mad, u32 *slot, u64 *service_id)
{
	if (mad[STEER_CLASS] == STEER_CLASS_CM)
		return steer_cm(mad, slot, service_id);
	if (!steer_is_response(mad))
		return STEER_BY_AGENT;
	*slot = steer_u32(mad + STEER_TID) >> STEER_SLOT_SHIFT;
	return STEER_BY_SLOT;
}

u32 steer_sender(const u8 *mad)
{
	return steer_u32(mad + STEER_LOCAL_ID) >> STEER_SLOT_SHIFT;
}

bool steer_names_nobody(const u8 *mad)
{
	u32 attribute = (u32)mad[STEER_ATTRIBUTE] << 8 | mad[STEER_ATTRIBUTE + 1];

	return mad[STEER_CLASS] == STEER_CLASS_CM && attribute == STEER_CM_REJ &&
	       steer_u32(mad + STEER_REMOTE_ID) == 0;
}
