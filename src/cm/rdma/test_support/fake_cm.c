/* fake_cm.c: the IB CM and the ports as this room's tests want them.
 * In:    calls of the room      Out: events that a test has chosen
 * Runs:  any thread             Locks: none
 */
#include "cm/rdma/test_support/fake_cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/ib/cm.h"
#include "node/hostip.h"

struct fake_cm fake_cm;

int cm_start(void)
{
	return 0;
}

struct ib_cm_id *ib_create_cm_id(struct ib_device *device, ib_cm_handler cm_handler, void *context)
{
	struct ib_cm_id *ib;

	if (fake_cm.fail_create != 0)
		return ERR_PTR(fake_cm.fail_create);
	ib = calloc(1, sizeof(*ib));
	if (ib == NULL)
		return ERR_PTR(-ENOMEM);
	ib->device = device;
	ib->cm_handler = cm_handler;
	ib->context = context;
	__atomic_add_fetch(&fake_cm.ids, 1, __ATOMIC_RELAXED);
	fake_cm.last = ib;
	return ib;
}

void ib_destroy_cm_id(struct ib_cm_id *cm_id)
{
	__atomic_sub_fetch(&fake_cm.ids, 1, __ATOMIC_RELAXED);
	free(cm_id);
}

bool fake_cm_event(struct ib_cm_id *ib, struct ib_cm_event *event)
{
	if (ib->cm_handler(ib, event) == 0)
		return false;
	ib_destroy_cm_id(ib);
	return true;
}

static int fake_called(enum fake_call call, const void *data, u8 len)
{
	__atomic_add_fetch(&fake_cm.calls[call], 1, __ATOMIC_RELAXED);
	fake_cm.data_len = len;
	if (len > 0)
		memcpy(fake_cm.data, data, len);
	return fake_cm.fail[call];
}

int ib_cm_listen(struct ib_cm_id *cm_id, __be64 service_id, __be64 service_mask,
		 struct ib_cm_compare_data *compare_data)
{
	cm_id->service_id = service_id;
	return fake_called(FAKE_LISTEN, NULL, 0);
}

int ib_send_cm_req(struct ib_cm_id *cm_id, struct ib_cm_req_param *param)
{
	return fake_called(FAKE_REQ, param->private_data, param->private_data_len);
}

int ib_send_cm_rep(struct ib_cm_id *cm_id, struct ib_cm_rep_param *param)
{
	return fake_called(FAKE_REP, param->private_data, param->private_data_len);
}

int ib_send_cm_rtu(struct ib_cm_id *cm_id, const void *private_data, u8 private_data_len)
{
	return fake_called(FAKE_RTU, private_data, private_data_len);
}

int ib_send_cm_dreq(struct ib_cm_id *cm_id, const void *private_data, u8 private_data_len)
{
	return fake_called(FAKE_DREQ, private_data, private_data_len);
}

int ib_send_cm_drep(struct ib_cm_id *cm_id, const void *private_data, u8 private_data_len)
{
	return fake_called(FAKE_DREP, private_data, private_data_len);
}

void cm_flush(struct ib_cm_id *cm_id)
{
	(void)cm_id;
}

bool cm_answer_briefly(struct ib_cm_id *cm_id)
{
	(void)cm_id;
	return true;
}

int ib_send_cm_rej(struct ib_cm_id *cm_id, enum ib_cm_rej_reason reason, void *ari, u8 ari_length,
		   const void *private_data, u8 private_data_len)
{
	return fake_called(FAKE_REJ, private_data, private_data_len);
}

int ib_send_cm_mra(struct ib_cm_id *cm_id, u8 service_timeout, const void *private_data,
		   u8 private_data_len)
{
	return fake_called(FAKE_MRA, private_data, private_data_len);
}

int ib_send_cm_sidr_req(struct ib_cm_id *cm_id, struct ib_cm_sidr_req_param *param)
{
	return fake_called(FAKE_SIDR_REQ, param->private_data, param->private_data_len);
}

int ib_send_cm_sidr_rep(struct ib_cm_id *cm_id, struct ib_cm_sidr_rep_param *param)
{
	return fake_called(FAKE_SIDR_REP, param->private_data, param->private_data_len);
}

struct ib_ah_attr cm_request_back(struct ib_cm_id *cm_id)
{
	(void)cm_id;
	return (struct ib_ah_attr){ .dlid = fake_cm.lid };
}

void cm_request_misnames(struct ib_cm_id *cm_id)
{
	(void)cm_id;
	fake_cm.misnamed++;
}

int ib_cm_notify(struct ib_cm_id *cm_id, enum ib_event_type event)
{
	return fake_called(FAKE_NOTIFY, NULL, 0);
}

int ib_cm_init_qp_attr(struct ib_cm_id *cm_id, struct ib_qp_attr *qp_attr, int *qp_attr_mask)
{
	*qp_attr_mask = IB_QP_STATE;
	return 0;
}

/* ---- hosts of a fabric ----------------------------------------------------------------------- */

int node_hostip_find(const u8 ip[16], struct node_hostip *out)
{
	return fake_cm.hostip != NULL ? fake_cm.hostip(ip, out) : -ENODEV;
}

int node_hostip_of(const u8 gid[16], u8 ip[16])
{
	return -ENODEV;
}

int node_hostip_port(const u8 gid[16], u32 *port)
{
	return -ENODEV;
}

/* ---- ports ----------------------------------------------------------------------------------- */

int node_port_take(struct node_port *p, const struct node_port_want *want)
{
	p->port = want->port != 0 ? want->port : 40000;
	return 0;
}

int node_port_permit(u16 port)
{
	return port < fake_cm.privileged ? -EACCES : 0;
}

int node_port_own(struct node_port *p)
{
	return 0;
}

void node_port_give(struct node_port *p)
{
	p->port = 0;
}
