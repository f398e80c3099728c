/* net_namespace.h: the network namespace is the process'. */
#ifndef ANYVERBS_NET_NET_NAMESPACE_H
#define ANYVERBS_NET_NET_NAMESPACE_H

struct net;

extern struct net init_net;

#endif
