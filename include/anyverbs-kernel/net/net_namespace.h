/* net_namespace.h: the network namespace is the process'. */
#ifndef ANYVERBS_NET_NET_NAMESPACE_H
#define ANYVERBS_NET_NET_NAMESPACE_H

struct net;

extern struct net init_net;

/* A field for a namespace. */
typedef struct {
	struct net *net;
} possible_net_t;

static inline void write_pnet(possible_net_t *to, struct net *net)
{
	to->net = net;
}

static inline struct net *read_pnet(const possible_net_t *from)
{
	return from->net;
}

#define net_eq(a, b) ((a) == (b))
/* It lives as long as the process. */
#define get_net(net) (net)
#define put_net(net) ((void)(net))

#endif
