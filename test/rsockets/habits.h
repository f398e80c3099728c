/* habits.h: what the careless programs of habits.c share, and those of the other
 * habits_*.c. */
#ifndef RSOCKETS_HABITS_H
#define RSOCKETS_HABITS_H

#include <netinet/in.h>

enum { SETTLE_MS = 200 }; /* what a forked server has to come to accept */

extern struct sockaddr_in address; /* of the listener */

/* What a call returned: a number, or the name of its errno. Valid for the next three calls. */
const char *result(long n);
/* Prints it. */
void say(const char *what, long n);
/* The same of a stream that has failed: programs must live with 0, ECONNRESET and EPIPE alike. */
const char *end_of(long n);
/* Sleeps, whatever signals come. */
void nap(int ms);
/* A listener: at a port of the kernel's choice, and at the same one from then on. */
int server_socket(int backlog);
/* A connection to it. With HABITS_RDMA in the environment: says so if TCP has one of the port. */
int client_socket(void);
/* Both ends of a connection. */
void make_pair(int fds[2]);
/* Until so many bytes, the end or an error: how many, or below 0. */
long read_all(int fd, unsigned char *buf, long size);
long write_all(int fd, const unsigned char *buf, long size);
/* A number that stands for the bytes. */
unsigned sum(const unsigned char *buf, long size);
/* Bytes that differ, to be freed. */
unsigned char *pattern(long size);

/* ---- habits_ends.c: peers that end without a word ---- */
void killed(void);
void exits(void);
void exits_at_once(void);
void listener_ends(void);
void leaves(void);
void sends_nothing(void);
void odd_ends(void);

/* ---- habits_cancel.c: threads that are cancelled ---- */
void cancel_deferred(void);
void cancel_at_once(void);
void cancel_busy(void);

#endif
