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

AV_EXPORT int aio_read(struct aiocb *a)
{
	sock_hand_on(a->aio_fildes);
	return NEXT(aio_read)(a);
}

AV_EXPORT int aio_write(struct aiocb *a)
{
	sock_hand_on(a->aio_fildes);
	return NEXT(aio_write)(a);
}

AV_EXPORT int lio_listio(int mode, struct aiocb *const list[], int count, struct sigevent *event)
{
	for (int i = 0; i < count; i++)
		if (list[i] != NULL)
			sock_hand_on(list[i]->aio_fildes);
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
