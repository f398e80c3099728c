/* calls.c: finds the r* calls of librdmacm.so.1.
 * In: nothing    Out: rcalls    Runs: the thread that first listens or connects
 * Locks: the loader's
 *
 * The library is loaded late, so that a program without TCP sockets is not slower for the shim.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "anyverbs/rsocket.h"
#include "rsockets.h"

struct rcalls rcalls;

static pthread_once_t calls_once = PTHREAD_ONCE_INIT;
static bool calls_there;

#define CALLS_FIND(name) (*(void **)&rcalls.name = dlsym(library, "r" #name)) != NULL

static bool calls_find(void *library)
{
	return CALLS_FIND(socket) && CALLS_FIND(bind) && CALLS_FIND(listen) && CALLS_FIND(accept) &&
	       CALLS_FIND(connect) && CALLS_FIND(shutdown) && CALLS_FIND(close) &&
	       CALLS_FIND(recv) && CALLS_FIND(send) && CALLS_FIND(recvmsg) && CALLS_FIND(sendmsg) &&
	       CALLS_FIND(poll) && CALLS_FIND(getpeername) && CALLS_FIND(getsockname) &&
	       CALLS_FIND(setsockopt) && CALLS_FIND(getsockopt) && CALLS_FIND(fcntl);
}

/* The program sees no number of librdmacm's: none of them shall be one that it may use. Another
 * librdmacm than ours has no such call. */
static void calls_hide_numbers(void *library)
{
	void (*hide)(void) = NULL;

	*(void **)&hide = dlsym(library, "fd_hide");
	if (hide != NULL)
		hide();
}

static void calls_load(void)
{
	void *library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);

	calls_there = library != NULL && calls_find(library);
	if (calls_there) {
		calls_hide_numbers(library);
		atexit(exit_flush);
	} else {
		log_error("rsockets", "no librdmacm.so.1 with rsockets: all connections are TCP");
	}
}

bool rcalls_load(void)
{
	int saved = errno;

	pthread_once(&calls_once, calls_load);
	errno = saved;
	return calls_there;
}

/* Without our librdmacm each end waits for its peer. */
int rsocket_new(int domain)
{
	int rfd = rcalls.socket(domain, SOCK_STREAM, 0), on = 1;

	if (rfd >= 0)
		(void)rcalls.setsockopt(rfd, SOL_RDMA, RDMA_CLOSE_AT_ONCE, &on, sizeof(on));
	return rfd;
}

void rsocket_end(int rfd)
{
	exit_note_closed();
	(void)rcalls.close(rfd);
}

void rsocket_forgo_linger(int rfd)
{
	struct linger linger;
	socklen_t size = sizeof(linger);

	if (rcalls.getsockopt(rfd, SOL_SOCKET, SO_LINGER, &linger, &size) != 0 ||
	    !linger.l_onoff || linger.l_linger == 0)
		return;
	linger.l_onoff = 0;
	(void)rcalls.setsockopt(rfd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}
