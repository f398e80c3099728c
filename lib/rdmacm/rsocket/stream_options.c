/* stream_options.c: options of streams: those of sockets that mean something here, and SOL_RDMA.
 * In:    levels, names, values             Out: what the connection is made with
 * Runs:  the application's threads         Locks: stream.conn_lock
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "anyverbs/rsocket.h"
#include "stream.h"
#include "user.h"

enum { OPTION_KEEPALIVE_S = 7200, OPTION_MSS = 2048, OPTION_ROUTE_MAX = 1 << 16 };

/* ---- setting --------------------------------------------------------------------------------- */

static int option_int(const void *value, socklen_t len, int *out)
{
	return len < sizeof(*out) ? -EINVAL : user_copy(out, value, sizeof(*out));
}

static void option_note(u32 *options, int name, int on)
{
	if (on)
		*options |= 1u << name;
	else
		*options &= ~(1u << name);
}

/* Buffers that are there already stay as they are, as with rdma-core. A negative value is a large
 * one, as with the kernel. */
static int option_set_buffer(u32 *bytes, int value)
{
	*bytes = stream_buffer_size(2 * (s64)(u32)value);
	return 0;
}

/* What the host's administrator has set for TCP. */
static u32 option_keepalive_default(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/tcp_keepalive_time", "re");
	u32 seconds = OPTION_KEEPALIVE_S;

	if (f == NULL)
		return seconds;
	if (fscanf(f, "%u", &seconds) != 1)
		seconds = OPTION_KEEPALIVE_S;
	fclose(f);
	return seconds;
}

static int option_set_linger(struct stream *s, const void *value, socklen_t len)
	REQUIRES(s->conn_lock)
{
	struct linger linger;

	if (len < sizeof(linger))
		return -EINVAL;
	if (user_copy(&linger, value, sizeof(linger)) < 0)
		return -EFAULT;
	s->linger = linger;
	s->linger_set = true;
	return 0;
}

/* Of a listener the streams that it accepts are kept alive. */
static int option_set_keepalive(struct stream *s, int on) REQUIRES(s->conn_lock)
{
	if (s->keepalive_s == 0)
		s->keepalive_s = option_keepalive_default();
	if (stream_phase(s) == STREAM_LISTENING)
		return 0;
	return service_keepalive(s, on || s->left_ns != 0); /* which watches both */
}

static int option_set_reuse(struct stream *s, int value) REQUIRES(s->conn_lock)
{
	/* a state in which the CM takes it no more is none in which it matters */
	if (rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value,
			    sizeof(value)) != 0 &&
	    stream_phase(s) == STREAM_NEW)
		return -errno;
	return 0;
}

static int option_set_socket(struct stream *s, int name, const void *value, socklen_t len)
	REQUIRES(s->conn_lock)
{
	int number, err;

	if (name == SO_LINGER)
		return option_set_linger(s, value, len);
	err = option_int(value, len, &number);
	if (err < 0)
		return err;
	switch (name) {
	case SO_REUSEADDR:
		err = option_set_reuse(s, number);
		break;
	case SO_KEEPALIVE:
		err = option_set_keepalive(s, number != 0);
		break;
	case SO_RCVBUF:
		return option_set_buffer(&s->want.recv_bytes, number);
	case SO_SNDBUF:
		return option_set_buffer(&s->want.send_bytes, number);
	case SO_OOBINLINE:
		break;
	default:
		return -ENOTSUP;
	}
	if (err == 0)
		option_note(&s->so_options, name, number);
	return err;
}

static int option_set_tcp(struct stream *s, int name, int value) REQUIRES(s->conn_lock)
{
	switch (name) {
	case TCP_NODELAY:
		option_note(&s->tcp_options, name, value);
		return 0;
	case TCP_MAXSEG:
	case TCP_KEEPCNT:
	case TCP_KEEPINTVL:
		return 0; /* the queue pair retries by itself */
	case TCP_KEEPIDLE:
		if (value <= 0)
			return -EINVAL;
		s->keepalive_s = (u32)value;
		return s->so_options & 1u << SO_KEEPALIVE ? option_set_keepalive(s, true) : 0;
	default:
		return -ENOTSUP;
	}
}

static int option_set_ipv6(struct stream *s, int name, int value) REQUIRES(s->conn_lock)
{
	if (name != IPV6_V6ONLY)
		return -ENOTSUP;
	if (rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value, sizeof(value)) !=
	    0)
		return -errno;
	option_note(&s->ipv6_options, name, value);
	return 0;
}

/* Whole records, one of which says that it is for both directions and for management, too: what
 * rdma_set_option takes. */
static int option_check_route(const struct ibv_path_data *records, u32 count)
{
	enum { WHOLE = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL };

	for (u32 i = 0; i < count; i++)
		if (records[i].flags == WHOLE)
			return 0;
	return -EINVAL;
}

static int option_set_route(struct stream *s, const void *value, socklen_t len)
	REQUIRES(s->conn_lock)
{
	struct ibv_path_data *copy;
	int err;

	if (len == 0 || len % sizeof(*copy) != 0 || len > OPTION_ROUTE_MAX)
		return -EINVAL;
	copy = malloc(len);
	if (copy == NULL)
		return -ENOMEM;
	err = user_copy(copy, value, len);
	if (err == 0)
		err = option_check_route(copy, len / (u32)sizeof(*copy));
	if (err < 0) {
		free(copy);
		return err;
	}
	free(s->route);
	s->route = copy;
	s->route_len = len;
	return 0;
}

/* At any time. */
static int option_set_at_once(struct stream *s, const void *value, socklen_t len)
	REQUIRES(s->conn_lock)
{
	int on, err = option_int(value, len, &on);

	if (err == 0)
		__atomic_store_n(&s->at_once, on != 0, __ATOMIC_RELAXED);
	return err;
}

static int option_set_rdma(struct stream *s, int name, const void *value, socklen_t len)
	REQUIRES(s->conn_lock)
{
	u32 phase = stream_phase(s), most = STREAM_MOST_QUEUE;
	int number, err;

	if (name == RDMA_CLOSE_AT_ONCE)
		return option_set_at_once(s, value, len);
	if (phase >= STREAM_RESOLVING_ADDR && phase != STREAM_FAILED)
		return -EINVAL;
	if (name == RDMA_ROUTE)
		return option_set_route(s, value, len);
	err = option_int(value, len, &number);
	if (err < 0)
		return err;
	switch (name) {
	case RDMA_SQSIZE:
		s->want.sq = MIN((u32)number, most);
		return 0;
	case RDMA_RQSIZE:
		s->want.rq = MIN((u32)number, most);
		return 0;
	case RDMA_INLINE:
		s->want.inline_bytes = MIN((u32)number, most);
		return 0;
	case RDMA_IOMAPSIZE:
		s->want.iomaps = iomaps_round((u32)MAX(number, 0));
		return 0;
	case RDMA_ACCEPT_ON_DEMAND:
		if (phase == STREAM_LISTENING)
			return number != 0 ? -EINVAL : accept_in_background(s);
		s->on_demand = number != 0;
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int option_set(struct stream *s, int level, int name, const void *value, socklen_t len)
	REQUIRES(s->conn_lock)
{
	int number, err;

	if (level == SOL_SOCKET)
		return option_set_socket(s, name, value, len);
	if (level == SOL_RDMA)
		return option_set_rdma(s, name, value, len);
	if (level != IPPROTO_TCP && level != IPPROTO_IPV6)
		return -ENOTSUP;
	err = option_int(value, len, &number);
	if (err < 0)
		return err;
	return level == IPPROTO_TCP ? option_set_tcp(s, name, number)
				    : option_set_ipv6(s, name, number);
}

int stream_setsockopt(struct rsocket *rs, int level, int name, const void *value, socklen_t len)
{
	struct stream *s = stream_of(rs);
	int err;

	lock_acquire(&s->conn_lock);
	err = option_set(s, level, name, value, len);
	lock_release(&s->conn_lock);
	return err;
}

/* ---- getting --------------------------------------------------------------------------------- */

static int option_give(void *value, socklen_t *len, const void *from, socklen_t size)
{
	return user_give(from, size, value, len);
}

static int option_give_int(void *value, socklen_t *len, s64 number)
{
	int out = (int)number;

	return option_give(value, len, &out, sizeof(out));
}

static bool option_is_on(u32 options, int name)
{
	return (options >> name & 1) != 0;
}

/* Without a choice of the application it is on, as with rdma-core, with the time that rclose waits,
 * so that a program may set what it has read. (rdma-core says 0 and ignores the time. Here 0 is to
 * abort.) With RDMA_CLOSE_AT_ONCE it is off, as with TCP. */
static int option_give_linger(const struct stream *s, void *value, socklen_t *len)
	REQUIRES(s->conn_lock)
{
	struct linger linger = s->linger;

	if (!s->linger_set && !__atomic_load_n(&s->at_once, __ATOMIC_RELAXED))
		linger = (struct linger){ .l_onoff = 1, .l_linger = STREAM_LINGER_S };
	return option_give(value, len, &linger, sizeof(linger));
}

static int option_get_socket(struct stream *s, int name, void *value, socklen_t *len)
	REQUIRES(s->conn_lock)
{
	bool made = s->cq.cq != NULL;

	switch (name) {
	case SO_REUSEADDR:
	case SO_KEEPALIVE:
	case SO_OOBINLINE:
		return option_give_int(value, len, option_is_on(s->so_options, name));
	case SO_RCVBUF:
		return option_give_int(value, len, made ? s->recv_size : s->want.recv_bytes);
	case SO_SNDBUF:
		return option_give_int(value, len, made ? s->send_size : s->want.send_bytes);
	case SO_LINGER:
		return option_give_linger(s, value, len);
	case SO_ERROR:
		s->told |= stream_phase(s) == STREAM_FAILED;
		return option_give_int(value, len,
				       __atomic_exchange_n(&s->error, 0, __ATOMIC_ACQ_REL));
	case SO_TYPE:
		return option_give_int(value, len, SOCK_STREAM);
	case SO_DOMAIN:
		return option_give_int(value, len, s->domain);
	case SO_PROTOCOL:
		return option_give_int(value, len, IPPROTO_TCP);
	case SO_ACCEPTCONN:
		return option_give_int(value, len, stream_phase(s) == STREAM_LISTENING);
	default:
		return -ENOTSUP;
	}
}

static int option_get_tcp(struct stream *s, int name, void *value, socklen_t *len)
	REQUIRES(s->conn_lock)
{
	switch (name) {
	case TCP_NODELAY:
		return option_give_int(value, len, option_is_on(s->tcp_options, name));
	case TCP_KEEPCNT:
	case TCP_KEEPINTVL:
		return option_give_int(value, len, 1);
	case TCP_KEEPIDLE:
		return option_give_int(value, len, s->keepalive_s != 0
							   ? s->keepalive_s
							   : option_keepalive_default());
	case TCP_MAXSEG:
		return option_give_int(value, len,
				       s->id->route.num_paths > 0
					       ? 1 << (7 + s->id->route.path_rec->mtu)
					       : OPTION_MSS);
	default:
		return -ENOTSUP;
	}
}

static struct ibv_path_data option_path(const struct ibv_sa_path_rec *rec)
{
	enum { EXACTLY = 2 << 6 };
	u32 flow_hop = (__builtin_bswap32(rec->flow_label) & 0xfffff) << 8 | rec->hop_limit;

	if (stream_host_is_network())
		flow_hop = (rec->flow_label & 0xfffff) << 8 | rec->hop_limit;
	return (struct ibv_path_data){
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = { .dgid = rec->dgid,
			  .sgid = rec->sgid,
			  .dlid = rec->dlid,
			  .slid = rec->slid,
			  .flowlabel_hoplimit = stream_host_is_network()
							? flow_hop
							: __builtin_bswap32(flow_hop),
			  .tclass = rec->traffic_class,
			  .reversible_numpath = (u8)(rec->reversible << 7 | 1),
			  .pkey = rec->pkey,
			  .qosclass_sl = stream_host_is_network()
						 ? rec->sl
						 : __builtin_bswap16(rec->sl),
			  .mtu = rec->mtu | EXACTLY,
			  .rate = rec->rate | EXACTLY,
			  .packetlifetime = rec->packet_life_time | EXACTLY },
	};
}

/* The route that was set, else the one that the CM has found. */
static int option_get_route(struct stream *s, void *value, socklen_t *len) REQUIRES(s->conn_lock)
{
	const struct rdma_route *route = &s->id->route;
	struct ibv_path_data path;
	socklen_t used = 0, room;
	int err = user_copy(&room, len, sizeof(room));

	if (err < 0)
		return err;
	if (room < (s->route != NULL ? s->route_len : sizeof(path)))
		return -EINVAL;
	if (s->route != NULL)
		return option_give(value, len, s->route, s->route_len);
	for (int i = 0; err == 0 && i < route->num_paths && used + sizeof(path) <= room; i++) {
		path = option_path(&route->path_rec[i]);
		err = user_copy((u8 *)value + used, &path, sizeof(path));
		used += sizeof(path);
	}
	return err < 0 ? err : user_copy(len, &used, sizeof(used));
}

static int option_get_rdma(struct stream *s, int name, void *value, socklen_t *len)
	REQUIRES(s->conn_lock)
{
	bool made = s->cq.cq != NULL;

	switch (name) {
	case RDMA_SQSIZE:
		return option_give_int(value, len, made ? s->sq_size : s->want.sq);
	case RDMA_RQSIZE:
		return option_give_int(value, len, made ? s->rq_size : s->want.rq);
	case RDMA_INLINE:
		return option_give_int(value, len, made ? s->sq_inline : s->want.inline_bytes);
	case RDMA_IOMAPSIZE:
		return option_give_int(value, len, s->want.iomaps);
	case RDMA_ACCEPT_ON_DEMAND:
		return option_give_int(value, len, s->on_demand);
	case RDMA_CLOSE_AT_ONCE:
		return option_give_int(value, len,
				       __atomic_load_n(&s->at_once, __ATOMIC_RELAXED) != 0);
	case RDMA_LINGERING:
		return option_give_int(value, len, (int)linger_count());
	case RDMA_ROUTE:
		return option_get_route(s, value, len);
	default:
		return -ENOTSUP;
	}
}

int stream_getsockopt(struct rsocket *rs, int level, int name, void *value, socklen_t *len)
{
	struct stream *s = stream_of(rs);
	int err = -ENOTSUP;

	lock_acquire(&s->conn_lock);
	if (level == SOL_SOCKET)
		err = option_get_socket(s, name, value, len);
	else if (level == IPPROTO_TCP)
		err = option_get_tcp(s, name, value, len);
	else if (level == SOL_RDMA)
		err = option_get_rdma(s, name, value, len);
	else if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
		err = option_give_int(value, len, option_is_on(s->ipv6_options, name));
	lock_release(&s->conn_lock);
	return err;
}
