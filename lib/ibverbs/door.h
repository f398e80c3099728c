/* door.h: inside the door: the objects behind the public structures, errors, symbol versions.
 *
 * Each object is the public structure with the door's own fields behind it, so a cast leads from
 * one to the other; a queue pair has its own fields in front. Inside the stack errors are negative
 * errno; here, and nowhere else, they become the value that the man page of each call promises. */
#ifndef IBVERBS_DOOR_H
#define IBVERBS_DOOR_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>

#include "base/lock.h"
#include "base/queue_memory.h"
#include "core/export.h"
#include "core/ucontext.h"
#include "core/uverbs.h"
#include "event/event.h"

/* The header hides these three behind macros of the same name; the door defines the functions. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* A name that stands in IBVERBS_1.0 and 1.1: `name` itself is the default, `old` the one that
 * programs of 2006 bind to. Both halves must be said, or the linker keeps one in silence. */
#define DOOR_DEFAULT(name) __asm__(".symver " #name "," #name "@@@IBVERBS_1.1")
#define DOOR_COMPAT(old, name, node) __asm__(".symver " #old "," #name "@" node)

/* Of later headers. */
enum {
	DOOR_ACCESS_FLUSH_GLOBAL = 1 << 8,
	DOOR_QP_EX_WITH_FLUSH = 1 << 11,
	DOOR_WR_FLUSH = 14,
	DOOR_PARENT_DOMAIN_UNPROTECTED = 1 << 2, /* ..._ALLOW_CC_UNPROTECTED_ALLOC */
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* For calls that return an errno value: 0 stays 0; a verb that the driver lacks reads as "not
 * supported". */
static inline int door_errno(int error)
{
	return error == -ENOSYS ? EOPNOTSUPP : -error;
}

/* For calls that return NULL and set errno. `error` is negative. */
static inline void *door_null(int error)
{
	errno = door_errno(error);
	return NULL;
}

/* For calls that return -1 and set errno. */
static inline int door_minus_one(int error)
{
	errno = door_errno(error);
	return -1;
}

/* ---- objects --------------------------------------------------------------------------------- */

struct door_device {
	struct ibv_device ibv FIXED;
	/* zero: libmlx5 and other providers look here for operations of their own */
	void *provider[6] FIXED;
	struct ib_device *ib FIXED;
	/* A list of one that keeps `ib` alive; given back with the device. */
	struct ib_device **held FIXED;
	struct list_head node OWNED_BY(device_lock);
	int refs OWNED_BY(device_lock); /* lists and contexts that name it */
	int index FIXED; /* the result of ibv_get_device_index */
	__be64 guid FIXED;
	char sysfs[256] FIXED;
};

struct door_stand_in; /* import.c: a domain for one of another process */

/* What all contexts of one descriptor share: the owner of their ucontext. */
struct door_file {
	struct door_device *device FIXED; /* a reference */
	/* what other processes may import; NULL: nothing, or the file is another process' */
	struct ib_export *export GUARDS_ITSELF;
	bool is_import FIXED; /* opened by another process */
	int open ATOMIC_ONLY; /* contexts that are not closed */
	struct door_stand_in *stand_ins ATOMIC_ONLY; /* of an import: a list, which only grows */
};

/* The widest layout of any release: six operations that came after 44.0 in front. Clients find a
 * slot by its distance from `verbs.context`, so one layout serves all of them. */
struct door_context {
	void *newer[6] FIXED;
	struct verbs_context verbs OWNED_BY(the application);
	struct ib_ucontext *ucontext FIXED; /* its owner is `file` */
	struct door_file *file FIXED;
	struct ib_device *ib FIXED;
	const struct ib_uverbs_ops *ops FIXED;
	struct async_queue *async FIXED;
	struct ib_event_handler handler GUARDS_ITSELF;
	int refs ATOMIC_ONLY; /* the opener and each object */
};

struct door_td {
	struct ibv_td ibv FIXED;
	int users ATOMIC_ONLY; /* parent domains */
};

struct door_pd {
	struct ibv_pd ibv FIXED;
	struct ib_pd *ib FIXED;
	/* of a parent domain: a reference to the domain below it */
	struct ib_uobject uobj GUARDS_ITSELF;
	struct door_pd *parent FIXED; /* the domain below a parent domain; NULL: a plain domain */
	struct door_td *td FIXED; /* of a parent domain, may be NULL */
	/* of a parent domain with allocators of the program; they are NULL elsewhere */
	struct queue_memory memory FIXED;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type) FIXED;
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type) FIXED;
	void *pd_context FIXED;
	/* itself and each object made with it */
	int refs OWNED_BY(atomic operations once it is made);
	u32 listed FIXED; /* its entry of door_file.export; 0: none */
};

struct door_mr {
	struct ibv_mr ibv OWNED_BY(the application);
	struct ib_mr *ib FIXED;
	struct ib_uobject uobj GUARDS_ITSELF;
	u32 listed FIXED;    /* as door_pd's */
	bool is_import FIXED; /* this process' own region, for one of another process */
};

struct door_dm {
	struct ibv_dm ibv OWNED_BY(the application);
	struct ib_dm *ib FIXED;
	struct ib_uobject uobj GUARDS_ITSELF;
	u32 listed FIXED;    /* as door_pd's */
	bool is_import FIXED; /* a map of another process' memory */
};

struct door_mw {
	struct ibv_mw ibv OWNED_BY(the application);
	struct ib_mw *ib FIXED;
	struct ib_uobject uobj GUARDS_ITSELF;
};

struct door_channel {
	/* of it the count of CQs, which the ABI has, is the door's: by atomic operations */
	struct ibv_comp_channel ibv OWNED_BY(the application);
	struct channel *ch FIXED;
};

struct door_cq {
	/* begins like struct ibv_cq */
	struct ibv_cq_ex ex OWNED_BY(the application);
	struct ib_cq *ib FIXED;
	int (*poll)(struct ib_cq *cq, int n, struct ibv_wc *wc) FIXED;
	/* the current entry of an extended poll, with its side data if `poll_ex` is set */
	struct ibv_wc wc OWNED_BY(door_cq.poll_lock);
	struct ib_wc_side side OWNED_BY(door_cq.poll_lock);
	int (*poll_ex)(struct ib_cq *cq, int n, struct ibv_wc *wc, struct ib_wc_side *side) FIXED;
	struct lock poll_lock;
	struct ibv_pd *parent_domain FIXED; /* NULL: none */
	struct ib_uobject uobj GUARDS_ITSELF;
	bool single_threaded FIXED;
};

struct door_xrcd {
	struct ibv_xrcd ibv FIXED;
	struct ib_xrcd *ib FIXED;
	int users ATOMIC_ONLY; /* SRQs and queue pairs made by it */
	int refs ATOMIC_ONLY;  /* the application, users, and targets that others keep open */
};

struct door_handle; /* xrc.c: one of the queue pairs that name an XRC target */

struct door_srq {
	struct ibv_srq ibv OWNED_BY(the application);
	struct ib_srq *ib FIXED;
	struct door_xrcd *xrcd FIXED; /* NULL: it is of no XRC domain */
	int (*post_recv)(struct ib_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
		FIXED;
	struct ib_uobject uobj GUARDS_ITSELF;
};

struct door_count; /* comp_counter.c: one of the counters of a queue pair */
struct door_batch; /* wr.c: work requests under construction */

/* With many queue pairs the one that is posted to may not be cached. A post reads one line of this:
 * the door's fields in front, and the public structure's first field, `context`, which
 * ibv_post_send reads. */
struct door_qp {
	struct ibv_qp_cap cap CACHE_ALIGNED FIXED;
	int sq_sig_all FIXED;
	union {
		struct door_batch *batch FIXED; /* NULL: not created for ibv_wr_* */
		struct door_handle *handle FIXED; /* of an XRC target, which sends nothing */
	};
	struct ib_qp *ib FIXED;
	int (*post_send)(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) FIXED;
	int (*post_recv)(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) FIXED;
	struct ibv_qp_ex ex OWNED_BY(the application); /* begins with struct ibv_qp */
	/* the field that follows in later headers */
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t length,
			 uint8_t type, uint8_t level) FIXED;
	struct ib_uobject uobj CACHE_ALIGNED GUARDS_ITSELF; /* the last line is no post's */
	struct door_count *counts ATOMIC_ONLY; /* a list, which only grows */
};
_Static_assert(offsetof(struct door_qp, wr_flush) ==
		       offsetof(struct door_qp, ex) + sizeof(struct ibv_qp_ex),
	       "later headers");
_Static_assert(offsetof(struct door_qp, ex.qp_base.context) + sizeof(void *) <= CACHE_LINE,
	       "a post reads one line");

/* What one index of the application's array is to count. */
struct door_counter_point {
	u32 index;
	enum ib_counters_description what;
} OWNED_BY(counters_lock);

struct door_counters {
	struct ibv_counters ibv FIXED;
	struct ib_counters *ib FIXED;
	struct door_counter_point *points OWNED_BY(counters_lock);
	u32 point_count OWNED_BY(counters_lock);
};

static inline struct door_counters *door_counters(struct ibv_counters *counters)
{
	return (struct door_counters *)counters;
}

struct door_table {
	struct ibv_rwq_ind_table ibv FIXED;
	struct ib_rwq_ind_table *ib FIXED;
};

static inline struct door_table *door_table(struct ibv_rwq_ind_table *table)
{
	return (struct door_table *)table;
}

static inline struct door_device *door_device(struct ibv_device *device)
{
	return (struct door_device *)device;
}

static inline struct door_context *door_context(struct ibv_context *context)
{
	return container_of(context, struct door_context, verbs.context);
}

/* Are they contexts of one file, which share all objects? ibv_import_device makes such ones. */
static inline bool context_is_same(const struct ibv_context *a, const struct ibv_context *b)
{
	return door_context((struct ibv_context *)a)->ucontext ==
	       door_context((struct ibv_context *)b)->ucontext;
}

/* Is `pd` a domain of this file that exists? */
static inline bool pd_is_usable(const struct ibv_pd *pd, const struct ibv_context *context)
{
	return pd && context_is_same(pd->context, context) && !((struct door_pd *)pd)->uobj.gone;
}

static inline struct door_pd *door_pd(struct ibv_pd *pd)
{
	return (struct door_pd *)pd;
}

/* Tells whether it was destroyed through another import of it. Then no object uses it, and none
 * may. */
static inline bool pd_is_gone(struct ibv_pd *pd)
{
	return door_pd(pd)->uobj.gone;
}

/* Where the queues of what is made with `pd` (may be NULL) lie; NULL: in memory of their own. */
static inline const struct queue_memory *pd_memory(struct ibv_pd *pd)
{
	return pd && door_pd(pd)->alloc ? &door_pd(pd)->memory : NULL;
}

static inline struct door_td *door_td(struct ibv_td *td)
{
	return (struct door_td *)td;
}

static inline struct door_dm *door_dm(struct ibv_dm *dm)
{
	return (struct door_dm *)dm;
}

static inline struct door_mr *door_mr(struct ibv_mr *mr)
{
	return (struct door_mr *)mr;
}

static inline struct door_mw *door_mw(struct ibv_mw *mw)
{
	return (struct door_mw *)mw;
}

static inline struct door_channel *door_channel(struct ibv_comp_channel *channel)
{
	return (struct door_channel *)channel;
}

static inline struct door_cq *door_cq(struct ibv_cq *cq)
{
	return (struct door_cq *)cq;
}

static inline struct door_srq *door_srq(struct ibv_srq *srq)
{
	return (struct door_srq *)srq;
}

static inline struct door_xrcd *door_xrcd(struct ibv_xrcd *xrcd)
{
	return (struct door_xrcd *)xrcd;
}

static inline struct door_qp *door_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct door_qp, ex.qp_base);
}

/* ---- between the files ----------------------------------------------------------------------- */

/* device.c. Takes a reference; the device is freed with the last. May block. */
void device_get(struct door_device *d);
void device_put(struct door_device *d);

/* context.c. An object takes one for its life: the memory of a context that is closed early stays
 * until they are gone, without its descriptors. */
void context_get(struct door_context *c);
void context_put(struct door_context *c);

/* compat_1_0.c: today's context, also for one of libibverbs 1.0, which calls without versions of
 * their own may get.
 */
struct ibv_context *old_or_new_context(struct ibv_context *context);

/* async.c: handlers for the three kinds of objects (the context argument is the public object), and
 * for the device.
 */
void async_on_cq(struct ib_event *event, void *cq);
void async_on_qp(struct ib_event *event, void *qp);
void async_on_srq(struct ib_event *event, void *srq);
void async_on_device(struct ib_event_handler *handler, struct ib_event *event);
/* The object of an event, which tells the member of its union. */
enum async_subject { ASYNC_PORT, ASYNC_CQ, ASYNC_QP, ASYNC_SRQ };
enum async_subject async_subject_of(enum ibv_event_type type);

/* The public structures count acknowledged events for programs to read or wait for: `counter`,
 * under `mutex`, with a signal. Destruction waits for the counts of src/event, so a public count
 * advances before its event is acknowledged there: the object may be freed from then on. */
static inline void door_count_events(pthread_mutex_t *mutex, pthread_cond_t *cond,
				     uint32_t *counter, uint32_t events)
{
	pthread_mutex_lock(mutex);
	*counter += events;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}
#define DOOR_COUNT_EVENTS(object, counter, events)                                                 \
	door_count_events(&(object)->mutex, &(object)->cond, &(object)->counter, events)

/* channel.c. Returns 0 when `fd` is readable, -EAGAIN if it is O_NONBLOCK and empty, -EINTR after a
 * signal whose handler has no SA_RESTART. The calling thread drives the engine meanwhile. */
int channel_wait_fd(struct door_context *c, int fd);

/* query.c: slots of the context. Return errno values. */
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t size);
int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* context.c. Makes the state of a descriptor, and takes a reference to the device; NULL: no memory,
 * and `export` stays the caller's. file_release gives all back. */
struct door_file *file_create(struct door_device *device, struct ib_export *export);
void file_release(void *file);

/* import.c: objects of another process, by the descriptor of its context. Each returns 0 or a
 * negative errno (core/import.h). */
/* Finds, or makes, this process' ucontext for a descriptor, with a reference for the caller. */
int import_ucontext(int cmd_fd, struct ib_ucontext **ucontext);
/* Frees the domains of an import that is closed. */
void import_close(struct door_file *file);
/* Does `handle` name an object of the other process? */
static inline bool import_names(const struct door_context *c, u32 handle)
{
	return c->file->is_import && handle <= IB_UCONTEXT_OWN_HANDLES;
}
/* Enters the domain that stands for the exporter's domain, unless one does; fills in `uobj` and
 * returns the domain in *pd. */
int import_domain(struct door_context *c, u32 handle, struct ib_uobject *uobj, struct ib_pd **pd);
/* The memory of the exporter's region, as this process may register it: `addr` is in this process,
 * and `access` has no right to write where the map here has none. */
int import_region(struct door_context *c, u32 handle, struct export_entry *entry);
/* Maps the exporter's device memory. */
int import_memory(struct door_context *c, u32 handle, struct ib_dm **dm);

/* pd.c. An object keeps the domain that it was made with, so that its `pd` stays valid even after
 * ibv_unimport_pd, and a parent domain knows that it is in use. */
void pd_hold(struct ibv_pd *pd);
void pd_release(struct ibv_pd *pd);

/* pd.c, mr.c, mw.c, cq.c, srq.c, qp.c: slots of the context. */
struct ibv_pd *pd_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr);
struct ibv_td *pd_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int pd_dealloc_td(struct ibv_td *td);
struct ibv_dm *dm_alloc(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int dm_free(struct ibv_dm *dm);
struct ibv_mr *mr_alloc_null(struct ibv_pd *pd);
struct ibv_mr *mr_register_dm(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			      unsigned int access);
int mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	      struct ibv_sge *sg_list, uint32_t num_sges);
struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type);
int mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int mw_dealloc(struct ibv_mw *mw);
int cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int cq_req_notify(struct ibv_cq *cq, int solicited_only);
int qp_limit_rate(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
int cq_modify(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int srq_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int srq_post_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);
struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);

/* flow.c, counters.c, wq.c: slots of the context. */
struct ibv_flow *flow_create(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int flow_destroy(struct ibv_flow *flow);
struct ibv_counters *counters_create(struct ibv_context *context,
				     struct ibv_counters_init_attr *attr);
int counters_destroy(struct ibv_counters *counters);
int counters_attach(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
		    struct ibv_flow *flow);
int counters_read(struct ibv_counters *counters, uint64_t *values, uint32_t count, uint32_t flags);
struct ibv_wq *wq_create(struct ibv_context *context, struct ibv_wq_init_attr *init);
int wq_modify(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int wq_destroy(struct ibv_wq *wq);
struct ibv_rwq_ind_table *wq_create_table(struct ibv_context *context,
					  struct ibv_rwq_ind_table_init_attr *init);
int wq_destroy_table(struct ibv_rwq_ind_table *table);

/* comp_counter.c: the queue pair is destroyed: its counters are its no more. */
void counts_leave(struct door_qp *qp);

/* qp.c: the fields of a queue pair that the midlayer does not know. */
void qp_fill(struct door_qp *qp, struct ibv_context *context, struct ibv_pd *pd,
	     const struct ibv_qp_init_attr *init);
/* Enters a queue pair whose `ib` is made. */
void qp_enter(struct door_qp *qp);

/* xrc.c: slots of the context. */
struct ibv_xrcd *xrc_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int xrc_close_xrcd(struct ibv_xrcd *xrcd);
int xrc_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_qp *xrc_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);

/* xrc.c: one more, or one less, object made by the domain. */
void xrcd_use(struct door_xrcd *xrcd);
void xrcd_unuse(struct door_xrcd *xrcd);
/* Makes the target that a queue pair is about to become, in `xrcd`, and its first handle. Returns
 * the context of target_on_event; NULL: no memory. */
void *target_create(struct door_qp *qp, struct door_xrcd *xrcd);
void target_on_event(struct ib_event *event, void *target);
/* The queue pair is made: ibv_open_qp finds it by its number. */
void target_show(struct door_qp *qp);
/* Creation has failed. */
void target_free(struct door_qp *qp);
/* Takes the handle `qp` from its target. True: it was the last, and the midlayer's queue pair is
 * the caller's to destroy, then target_free; or target_keep, if that fails. */
bool target_leave(struct door_qp *qp);
void target_keep(struct door_qp *qp);

/* cq.c: shows a queue's size after a change of it. Any thread. */
void cq_show_size(const struct ib_cq *ib, int *shown);

/* cq_ex.c: fills in the extended polling operations. */
void cq_ex_init(struct door_cq *cq, uint64_t wc_flags);

/* wr.c: the ibv_wr_* operations of a QP, `flags` being the wanted IBV_QP_EX_WITH_* bits. 0,
 * -EOPNOTSUPP, -ENOMEM.
 */
int wr_init(struct door_qp *qp, uint64_t flags);
void wr_fini(struct door_qp *qp);
void wr_drop_in_child(struct door_qp *qp);

#endif
