/* queue.c: CQs with a handler, and SRQs, by Linux 6.1's attributes.
 * In: consumers    Out: the midlayer's calls of 2007    Runs: the caller    Locks: none
 */
#include <errno.h>
#include <limits.h>

#include "consumer/consumer_priv.h"

struct ib_cq *ib_create_cq_linux61(struct ib_device *device, ib_comp_handler comp_handler,
				   void (*event_handler)(struct ib_event *event, void *context),
				   void *cq_context, const struct ib_cq_init_attr_linux61 *attr)
{
	if (device == NULL || attr == NULL || attr->cqe > INT_MAX || attr->comp_vector > INT_MAX)
		return ERR_PTR(-EINVAL);
	if (attr->flags != 0 || !core_serves_linux61(device))
		return ERR_PTR(-EOPNOTSUPP);
	return ib_create_cq(device, comp_handler, event_handler, cq_context, (int)attr->cqe,
			    (int)attr->comp_vector);
}

struct ib_srq *ib_create_srq_linux61(struct ib_pd *pd, struct ib_srq_init_attr_linux61 *init)
{
	struct ib_srq_init_attr_ex own = { .size = sizeof(own) };
	struct ib_srq *srq;

	if (pd == NULL || init == NULL)
		return ERR_PTR(-EINVAL);
	own.srq_type = init->srq_type;
	own.base = (struct ib_srq_init_attr){ .event_handler = init->event_handler,
					      .srq_context = init->srq_context,
					      .attr = init->attr };
	if (init->srq_type != IB_SRQT_BASIC)
		own.cq = init->ext.cq;
	if (init->srq_type == IB_SRQT_XRC)
		own.xrcd = init->ext.xrc.xrcd;
	if (init->srq_type == IB_SRQT_TM)
		own.max_num_tags = own.max_ops = init->ext.tag_matching.max_num_tags;
	srq = ib_create_srq_ex(pd, &own);
	if (!IS_ERR(srq))
		init->attr = own.base.attr;
	return srq;
}
