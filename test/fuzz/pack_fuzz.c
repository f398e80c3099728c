/* pack_fuzz.c: headers and records of a stranger, read by their tables.
 *
 * The first byte says which; the rest lies in memory of exactly the size that the reader expects.
 * Whatever is read is written again, and comes back as it was written.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <rdma/ib_marshall.h>
#include <rdma/ib_pack.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"

static void fuzz_headers(u8 *data)
{
	struct ib_ud_header h, again;
	u8 out[IB_UD_HEADER_BYTES] = { 0 };
	int bytes;

	if (ib_ud_header_unpack(data, &h) != 0)
		return;
	bytes = ib_ud_header_pack(&h, out);
	fuzz_need(bytes <= IB_UD_HEADER_BYTES, "longer than all headers");
	fuzz_need(ib_ud_header_unpack(out, &again) == 0, "not taken again");
	fuzz_need(memcmp(&h, &again, sizeof(h)) == 0, "other headers");
}

static void fuzz_path(u8 *data)
{
	struct ib_sa_path_rec path, again;
	struct ib_user_path_rec user;
	u8 out[IB_SA_PATH_BYTES], twice[IB_SA_PATH_BYTES];

	ib_sa_unpack_path(data, &path);
	ib_sa_pack_path(&path, out);
	ib_sa_unpack_path(out, &again);
	fuzz_need(memcmp(&path, &again, sizeof(path)) == 0, "another path");
	ib_copy_path_rec_to_user(&user, &path);
	ib_copy_path_rec_from_user(&again, &user);
	again.service_id = path.service_id;
	again.qos_class = path.qos_class;
	ib_sa_pack_path(&again, twice);
	fuzz_need(memcmp(out, twice, sizeof(out)) == 0, "another path by way of a user");
}

static void fuzz_mcmember(u8 *data)
{
	struct ib_sa_mcmember_rec rec, again;
	u8 out[IB_SA_MCMEMBER_BYTES];

	ib_sa_unpack_mcmember(data, &rec);
	ib_sa_pack_mcmember(&rec, out);
	ib_sa_unpack_mcmember(out, &again);
	fuzz_need(memcmp(&rec, &again, sizeof(rec)) == 0, "another member");
}

static void fuzz_service(u8 *data)
{
	struct ib_sa_service_rec rec, again;
	u8 out[IB_SA_SERVICE_BYTES];

	ib_sa_unpack_service(data, &rec);
	ib_sa_pack_service(&rec, out);
	ib_sa_unpack_service(out, &again);
	fuzz_need(memcmp(&rec, &again, sizeof(rec)) == 0, "another service");
}

static void fuzz_inform(u8 *data)
{
	struct ib_sa_inform rec, again;
	u8 out[IB_SA_INFORM_BYTES];

	ib_sa_unpack_inform(data, &rec);
	ib_sa_pack_inform(&rec, out);
	ib_sa_unpack_inform(out, &again);
	fuzz_need(memcmp(&rec, &again, sizeof(rec)) == 0, "another subscription");
}

/* No bit of a notice is reserved. */
static void fuzz_notice(u8 *data)
{
	struct ib_sa_notice rec;
	u8 out[IB_SA_NOTICE_BYTES];

	ib_sa_unpack_notice(data, &rec);
	ib_sa_pack_notice(&rec, out);
	fuzz_need(memcmp(data, out, sizeof(out)) == 0, "another notice");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static const struct {
		void (*fn)(u8 *data);
		size_t bytes;
	} readers[] = { { fuzz_headers, IB_UD_HEADER_BYTES },
			{ fuzz_path, IB_SA_PATH_BYTES },
			{ fuzz_mcmember, IB_SA_MCMEMBER_BYTES },
			{ fuzz_service, IB_SA_SERVICE_BYTES },
			{ fuzz_inform, IB_SA_INFORM_BYTES },
			{ fuzz_notice, IB_SA_NOTICE_BYTES } };
	struct input in = { data, size };
	u8 which = input_u8(&in) % ARRAY_LEN(readers), *copy = malloc(readers[which].bytes);

	input_bytes(&in, copy, readers[which].bytes);
	readers[which].fn(copy);
	free(copy);
	return 0;
}
