/* path.c: questions for path, service and multicast member records.
 * In:    records    Out: callbacks of consumers
 * Runs:  consumers; the MAD layer's queue    Locks: none
 * Spec:  IBA vol 1, 15.2.5
 */
#include <errno.h>

#include "sa/sa_priv.h"

static void sa_path_pack(const void *record, void *attribute)
{
	ib_sa_pack_path((struct ib_sa_path_rec *)(uintptr_t)record, attribute);
}

static void sa_service_pack(const void *record, void *attribute)
{
	ib_sa_pack_service((struct ib_sa_service_rec *)(uintptr_t)record, attribute);
}

static void sa_mcmember_pack(const void *record, void *attribute)
{
	ib_sa_pack_mcmember((struct ib_sa_mcmember_rec *)(uintptr_t)record, attribute);
}

typedef void (*sa_path_fn)(int status, struct ib_sa_path_rec *resp, void *context);
typedef void (*sa_service_fn)(int status, struct ib_sa_service_rec *resp, void *context);
typedef void (*sa_mcmember_fn)(int status, struct ib_sa_mcmember_rec *resp, void *context);

static void sa_path_done(struct sa_query *q, int status, struct ib_sa_mad *mad)
{
	struct ib_sa_path_rec rec;

	if (mad != NULL)
		ib_sa_unpack_path(mad->data, &rec);
	((sa_path_fn)q->callback)(status, status == 0 ? &rec : NULL, q->context);
}

static void sa_service_done(struct sa_query *q, int status, struct ib_sa_mad *mad)
{
	struct ib_sa_service_rec rec;

	if (mad != NULL)
		ib_sa_unpack_service(mad->data, &rec);
	((sa_service_fn)q->callback)(status, status == 0 ? &rec : NULL, q->context);
}

static void sa_mcmember_done(struct sa_query *q, int status, struct ib_sa_mad *mad)
{
	struct ib_sa_mcmember_rec rec;

	if (mad != NULL)
		ib_sa_unpack_mcmember(mad->data, &rec);
	((sa_mcmember_fn)q->callback)(status, status == 0 ? &rec : NULL, q->context);
}

static bool sa_method_is_known(u8 method)
{
	return method == IB_MGMT_METHOD_GET || method == IB_MGMT_METHOD_SET ||
	       method == IB_SA_METHOD_DELETE;
}

static int sa_path_ask(struct ib_device *device, u8 port_num, const struct sa_ask *ask,
		    const void *record, void (*pack)(const void *record, void *attribute))
{
	struct sa_port *port = sa_port_get(device, port_num);
	int id;

	if (port == NULL)
		return -ENODEV;
	id = sa_query_begin(port, ask, record, pack);
	sa_port_put(port);
	return id;
}

int ib_sa_path_rec_get(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
		       struct ib_sa_path_rec *rec, ib_sa_comp_mask comp_mask, int timeout_ms,
		       unsigned int gfp_mask, sa_path_fn callback, void *context,
		       struct ib_sa_query **query)
{
	struct sa_ask ask = { .client = client,
			      .method = IB_MGMT_METHOD_GET,
			      .attribute = IB_SA_ATTR_PATH_REC,
			      .mask = comp_mask,
			      .timeout_ms = timeout_ms,
			      .retries = SA_RETRIES,
			      .done = sa_path_done,
			      .callback = callback,
			      .context = context,
			      .query = query };

	return sa_path_ask(device, port_num, &ask, rec, sa_path_pack);
}

int ib_sa_service_rec_query(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
			    u8 method, struct ib_sa_service_rec *rec, ib_sa_comp_mask comp_mask,
			    int timeout_ms, unsigned int gfp_mask, sa_service_fn callback,
			    void *context, struct ib_sa_query **query)
{
	struct sa_ask ask = { .client = client,
			      .method = method,
			      .attribute = IB_SA_ATTR_SERVICE_REC,
			      .mask = comp_mask,
			      .timeout_ms = timeout_ms,
			      .retries = SA_RETRIES,
			      .done = sa_service_done,
			      .callback = callback,
			      .context = context,
			      .query = query };

	if (!sa_method_is_known(method))
		return -EINVAL;
	return sa_path_ask(device, port_num, &ask, rec, sa_service_pack);
}

int ib_sa_mcmember_rec_query(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
			     u8 method, struct ib_sa_mcmember_rec *rec, ib_sa_comp_mask comp_mask,
			     int timeout_ms, unsigned int gfp_mask, sa_mcmember_fn callback,
			     void *context, struct ib_sa_query **query)
{
	struct sa_ask ask = { .client = client,
			      .method = method,
			      .attribute = IB_SA_ATTR_MC_MEMBER_REC,
			      .mask = comp_mask,
			      .timeout_ms = timeout_ms,
			      .retries = SA_RETRIES,
			      .done = sa_mcmember_done,
			      .callback = callback,
			      .context = context,
			      .query = query };

	if (!sa_method_is_known(method))
		return -EINVAL;
	return sa_path_ask(device, port_num, &ask, rec, sa_mcmember_pack);
}
