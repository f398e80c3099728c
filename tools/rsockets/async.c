/* async.c: what tells or moves bytes of a connection behind the program's back: POSIX AIO, SIGIO.
 * In: the program's calls    Out: connections that the service relays
 * Runs: any thread    Locks: none
 *
 * The C library's threads and the kernel's signals know the pair alone. So the pair gets the bytes,
 * as for a program that has the descriptor by exec.
 */
#include <aio.h>

#include "rsockets.h"

NEXT_SLOT(aio_read);
NEXT_SLOT(aio_write);
NEXT_SLOT(lio_listio);

AV_EXPORT int aio_read64(struct aiocb64 *a);
AV_EXPORT int aio_write64(struct aiocb64 *a);
AV_EXPORT int lio_listio64(int mode, struct aiocb64 *const list[], int count,
			   struct sigevent *event);

void async_give(int fd)
{
	struct sock *s = sock_get(fd);

	if (s == NULL)
		return;
	sock_use(s);
	if (sock_kind(s) == SOCK_DIRECT)
		sock_give_away(s);
	sock_put(s);
}

AV_EXPORT int aio_read(struct aiocb *a)
{
	async_give(a->aio_fildes);
	return NEXT(aio_read)(a);
}

AV_EXPORT int aio_write(struct aiocb *a)
{
	async_give(a->aio_fildes);
	return NEXT(aio_write)(a);
}

AV_EXPORT int lio_listio(int mode, struct aiocb *const list[], int count, struct sigevent *event)
{
	for (int i = 0; i < count; i++)
		if (list[i] != NULL)
			async_give(list[i]->aio_fildes);
	return NEXT(lio_listio)(mode, list, count, event);
}

/* The same structures on 64-bit processors. */
AV_EXPORT int aio_read64(struct aiocb64 *a)
{
	return aio_read((struct aiocb *)a);
}

AV_EXPORT int aio_write64(struct aiocb64 *a)
{
	return aio_write((struct aiocb *)a);
}

AV_EXPORT int lio_listio64(int mode, struct aiocb64 *const list[], int count,
			   struct sigevent *event)
{
	return lio_listio(mode, (struct aiocb *const *)list, count, event);
}
