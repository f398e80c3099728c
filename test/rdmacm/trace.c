/* trace.c: a library for LD_PRELOAD, as people write it to trace a program's calls: it exports
 * names of librdmacm and libibverbs without a version and passes each call on. It must see the
 * program's calls and librdmacm's of libibverbs, never those inside the library that defines the
 * name, nor those of the stack, whose rdma_create_id is another function.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_CAUGHT = 98, EXIT_SAW_NOTHING = 99 };

static int calls; /* atomic */

/* `from` is where the call returns to. */
static void trace_call(const char *name, const char *own, const void *from)
{
	Dl_info info;

	__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	if (dladdr(from, &info) == 0 || info.dli_fname == NULL)
		return;
	if (strstr(info.dli_fname, "libanyverbs.so") == NULL && strstr(info.dli_fname, own) == NULL)
		return;
	fprintf(stderr, "trace: %s of %s came here\n", name, info.dli_fname);
	_exit(EXIT_CAUGHT);
}

/* Their arguments are integers and pointers, six at most. */
typedef long (*trace_fn)(long a, long b, long c, long d, long e, long f);

#define TRACED(name, own)                                                                          \
	long name(long a, long b, long c, long d, long e, long f);                                 \
	long name(long a, long b, long c, long d, long e, long f)                                  \
	{                                                                                          \
		trace_call(#name, own, __builtin_return_address(0));                               \
		return ((trace_fn)dlsym(RTLD_NEXT, #name))(a, b, c, d, e, f);                      \
	}
#define TRACED_CM(name) TRACED(name, "librdmacm.so")
#define TRACED_VERBS(name) TRACED(name, "libibverbs.so")

TRACED_CM(rdma_accept)
TRACED_CM(rdma_ack_cm_event)
TRACED_CM(rdma_bind_addr)
TRACED_CM(rdma_connect)
TRACED_CM(rdma_create_id)
TRACED_CM(rdma_create_qp)
TRACED_CM(rdma_create_qp_ex)
TRACED_CM(rdma_destroy_id)
TRACED_CM(rdma_destroy_qp)
TRACED_CM(rdma_disconnect)
TRACED_CM(rdma_freeaddrinfo)
TRACED_CM(rdma_get_cm_event)
TRACED_CM(rdma_init_qp_attr)
TRACED_CM(rdma_listen)
TRACED_CM(rdma_notify)
TRACED_CM(rdma_reject)
TRACED_CM(rdma_resolve_addr)
TRACED_CM(rdma_resolve_route)
TRACED_CM(rdma_set_option)
TRACED_VERBS(ibv_ack_async_event)
TRACED_VERBS(ibv_ack_cq_events)
TRACED_VERBS(ibv_alloc_pd)
TRACED_VERBS(ibv_close_device)
TRACED_VERBS(ibv_create_ah)
TRACED_VERBS(ibv_create_comp_channel)
TRACED_VERBS(ibv_create_cq)
TRACED_VERBS(ibv_create_qp)
TRACED_VERBS(ibv_create_srq)
TRACED_VERBS(ibv_dealloc_pd)
TRACED_VERBS(ibv_dereg_mr)
TRACED_VERBS(ibv_destroy_comp_channel)
TRACED_VERBS(ibv_destroy_cq)
TRACED_VERBS(ibv_destroy_qp)
TRACED_VERBS(ibv_free_device_list)
TRACED_VERBS(ibv_get_device_list)
TRACED_VERBS(ibv_get_device_name)
TRACED_VERBS(ibv_modify_qp)
TRACED_VERBS(ibv_open_device)
TRACED_VERBS(ibv_query_device)
TRACED_VERBS(ibv_query_gid)
TRACED_VERBS(ibv_query_port)
TRACED_VERBS(ibv_reg_mr)

static void __attribute__((destructor)) trace_end(void)
{
	if (strcmp(program_invocation_short_name, "rdmacm_api") != 0)
		return; /* what the test has started */
	if (__atomic_load_n(&calls, __ATOMIC_RELAXED) == 0)
		_exit(EXIT_SAW_NOTHING);
}
