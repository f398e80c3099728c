/* sa_user.c: an upper layer that asks the subnet administrator of its host's first port, for
 * sa_test.py: the calls of ib_sa.h, and what they answer, as lines of text.
 *
 *   sa_user notices TRAP...            subscribes, until its standard input ends
 *   sa_user set ID NAME LEASE [KEY]    registers a service; DATA8 is NAME's length
 *   sa_user get ID | delete ID [KEY]
 *   sa_user attach LID...              attaches a queue pair to a group of that LID: the errnos
 *
 * In:    arguments    Out: lines on standard output; 0, or 1 and a reason
 * Runs:  the main thread; callbacks on the midlayer's    Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRAPS = 8, PORT = 1, TIMEOUT_MS = 2000 };

static struct ib_device *the_device;
static struct ib_sa_client sa;
static sem_t done;
static int outcome;

static void user_add(struct ib_device *device)
{
	if (the_device == NULL)
		the_device = device;
}

static void user_remove(struct ib_device *device)
{
	(void)device;
}

static struct ib_client user_client = { .name = "user", .add = user_add, .remove = user_remove };

/* ---- subscriptions --------------------------------------------------------------------------- */

static int user_heard(int status, struct ib_inform_info *info, struct ib_sa_notice *notice)
{
	if (status != 0) {
		printf("trap %u: error %d\n", info->trap_number, -status);
	} else if (notice == NULL) {
		printf("trap %u: subscribed\n", info->trap_number);
	} else {
		printf("trap %u: notice %u about ", info->trap_number, be16toh(notice->trap_num));
		for (int i = 0; i < 16; i++)
			printf("%02x", notice->data.gid_event.gid.raw[i]);
		printf("\n");
	}
	fflush(stdout);
	return 0;
}

static int user_notices(char **traps, int count)
{
	struct ib_inform_info *info[TRAPS];
	char byte;

	if (count < 1 || count > TRAPS)
		return -EINVAL;
	for (int i = 0; i < count; i++) {
		info[i] = ib_sa_register_inform_info(&sa, the_device, PORT, (u16)atoi(traps[i]), 0,
						     user_heard, NULL);
		if (IS_ERR(info[i]))
			return (int)PTR_ERR(info[i]);
	}
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	for (int i = 0; i < count; i++)
		(void)ib_sa_unregister_inform_info(info[i]);
	return 0;
}

/* ---- services -------------------------------------------------------------------------------- */

static void user_answered(int status, struct ib_sa_service_rec *resp, void *context)
{
	(void)context;
	outcome = status;
	if (status == 0)
		printf("service 0x%llx %.64s lease %u data %u\n",
		       (unsigned long long)be64toh(resp->id), (char *)resp->name,
		       be32toh(resp->lease), resp->data8[0]);
	sem_post(&done);
}

static int user_service(u8 method, char **args, int count)
{
	ib_sa_comp_mask mask = IB_SA_SERVICE_REC_SERVICE_ID;
	struct ib_sa_service_rec rec = { .id = htobe64(strtoull(args[0], NULL, 0)),
					 .pkey = htobe16(IB_DEFAULT_PKEY_FULL) };
	bool set = method == IB_MGMT_METHOD_SET;
	struct ib_sa_query *query;
	int err;

	if (set && count < 3)
		return -EINVAL;
	if (set) {
		snprintf((char *)rec.name, sizeof(rec.name), "%s", args[1]);
		rec.lease = htobe32((u32)strtoul(args[2], NULL, 0));
		rec.data8[0] = (u8)strlen(args[1]);
		mask |= IB_SA_SERVICE_REC_SERVICE_NAME | IB_SA_SERVICE_REC_SERVICE_LEASE |
			IB_SA_SERVICE_REC_SERVICE_DATA8_0;
	}
	if (method != IB_MGMT_METHOD_GET) {
		mask |= IB_SA_SERVICE_REC_SERVICE_GID | IB_SA_SERVICE_REC_SERVICE_PKEY |
			IB_SA_SERVICE_REC_SERVICE_KEY;
		err = ib_get_cached_gid(the_device, PORT, 0, &rec.gid);
		if (err != 0)
			return err;
		if (count > (set ? 3 : 1))
			snprintf((char *)rec.key, sizeof(rec.key), "%s", args[set ? 3 : 1]);
	}
	err = ib_sa_service_rec_query(&sa, the_device, PORT, method, &rec, mask, TIMEOUT_MS, 0,
				      user_answered, NULL, &query);
	if (err < 0)
		return err;
	while (sem_wait(&done) < 0)
		;
	return outcome;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int user_attach(char **lids, int count)
{
	union ib_gid group = { .raw = { 0xff, 0x12, [15] = 1 } };
	struct ib_pd *pd = ib_alloc_pd(the_device);
	struct ib_cq *cq = ib_create_cq(the_device, NULL, NULL, NULL, 16, 0);
	struct ib_qp_init_attr init = { .send_cq = cq,
					.recv_cq = cq,
					.cap = { .max_send_wr = 1, .max_recv_wr = 1,
						 .max_send_sge = 1, .max_recv_sge = 1 },
					.qp_type = IB_QPT_UD };
	struct ib_qp *qp = ib_create_qp(pd, &init);

	if (IS_ERR(qp))
		return (int)PTR_ERR(qp);
	for (int i = 0; i < count; i++) {
		u16 lid = (u16)strtoul(lids[i], NULL, 0);
		int attach = ib_attach_mcast(qp, &group, lid);

		printf("%s: attach %d detach %d\n", lids[i], -attach,
		       -ib_detach_mcast(qp, &group, lid));
	}
	(void)ib_destroy_qp(qp);
	(void)ib_destroy_cq(cq);
	return ib_dealloc_pd(pd);
}

static int user_run(int argc, char **argv)
{
	static const struct {
		const char *word;
		u8 method;
	} methods[] = { { "set", IB_MGMT_METHOD_SET },
			{ "get", IB_MGMT_METHOD_GET },
			{ "delete", IB_SA_METHOD_DELETE } };

	if (the_device == NULL)
		return -ENODEV;
	if (argc > 2 && strcmp(argv[1], "notices") == 0)
		return user_notices(argv + 2, argc - 2);
	if (argc > 2 && strcmp(argv[1], "attach") == 0)
		return user_attach(argv + 2, argc - 2);
	for (size_t i = 0; argc > 2 && i < sizeof(methods) / sizeof(*methods); i++)
		if (strcmp(argv[1], methods[i].word) == 0)
			return user_service(methods[i].method, argv + 2, argc - 2);
	return -EINVAL;
}

int main(int argc, char **argv)
{
	int err;

	sem_init(&done, 0, 0);
	err = ib_register_client(&user_client);
	if (err == 0) {
		ib_sa_register_client(&sa);
		err = user_run(argc, argv);
		ib_sa_unregister_client(&sa);
		ib_unregister_client(&user_client);
	}
	if (err != 0)
		printf("error %d %s\n", -err, strerror(-err));
	return err != 0;
}
