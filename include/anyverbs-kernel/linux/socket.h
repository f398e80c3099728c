/* socket.h: the C library's structures of sockets. */
#ifndef ANYVERBS_LINUX_SOCKET_H
#define ANYVERBS_LINUX_SOCKET_H

#include_next <linux/socket.h>

#include <sys/socket.h>

#endif
