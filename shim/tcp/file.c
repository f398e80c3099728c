/* file.c: sendfile, splice, and stdio over a connection.
 * In: a file, a stream    Out: bytes of the rsocket    Runs: any thread    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "rsockets.h"

AV_EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...) PRINTF_LIKE(3, 4);
AV_EXPORT int __vdprintf_chk(int fd, int flag, const char *fmt, va_list args);

NEXT_SLOT(sendfile);
NEXT_SLOT(splice);
NEXT_SLOT(fdopen);
NEXT_SLOT(vdprintf);

enum { FILE_PIECE = 96 * 1024 };

static void file_free(void *memory)
{
	free(*(void **)memory);
}

/* Sends `size` bytes of the file from *at on, in pieces; *at ends behind what was sent. */
static ssize_t file_send(struct sock *s, int in, off_t *at, size_t size, void *piece)
{
	size_t sent = 0;

	while (sent < size) {
		ssize_t got = pread(in, piece, MIN(size - sent, (size_t)FILE_PIECE), *at), n;
		struct iovec v = { piece, (size_t)MAX(got, 0) };

		n = got > 0 ? data_send(s, &v, 1, 0) : got;
		if (n > 0) {
			sent += (size_t)n;
			*at += n;
		}
		if (n <= 0 || n < got)
			return sent > 0 || n == 0 ? (ssize_t)sent : -1;
	}
	return (ssize_t)sent;
}

static ssize_t file_sendfile(struct sock *s, int in, off_t *offset, size_t size)
{
	off_t at = offset != NULL ? *offset : lseek(in, 0, SEEK_CUR);
	void *piece CLEANUP(file_free) = NULL;
	ssize_t n;

	if (at < 0 || fcntl(in, F_GETFD) < 0) {
		errno = fcntl(in, F_GETFD) < 0 ? EBADF : EINVAL; /* the kernel's, of a pipe */
		return -1;
	}
	piece = malloc(MAX(MIN(size, (size_t)FILE_PIECE), (size_t)1));
	if (piece == NULL)
		return -1;
	n = file_send(s, in, &at, size, piece);
	if (n <= 0)
		return n;
	if (offset != NULL)
		*offset = at;
	else
		(void)lseek(in, at, SEEK_SET);
	return n;
}

AV_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t size)
{
	CALL c = call_begin_data(out);

	return c.s == NULL ? NEXT(sendfile)(out, in, offset, size) :
			     file_sendfile(c.s, in, offset, size);
}

AV_EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t size)
{
	_Static_assert(sizeof(off_t) == sizeof(off64_t), "one offset");
	return sendfile(out, in, (off_t *)offset, size);
}

/* Programs that splice copy where the kernel says that it cannot. */
AV_EXPORT ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t size,
			 unsigned flags)
{
	CALL a = call_begin_data(in), b = call_begin_data(out);

	if (a.s == NULL && b.s == NULL)
		return NEXT(splice)(in, in_at, out, out_at, size, flags);
	errno = EINVAL;
	return -1;
}

/* The C library's streams call its own read and write: the connection is relayed from now on. */
AV_EXPORT FILE *fdopen(int fd, const char *mode)
{
	sock_hand_on(fd);
	return NEXT(fdopen)(fd, mode);
}

static int file_print(struct sock *s, const char *fmt, va_list args)
{
	char *text CLEANUP(file_free) = NULL;
	int size = vasprintf(&text, fmt, args), done = 0;

	if (size < 0) {
		text = NULL;
		return -1;
	}

	while (done < size) {
		struct iovec v = { text + done, (size_t)(size - done) };
		ssize_t n = data_send(s, &v, 1, 0);

		if (n < 0)
			break;
		done += (int)n;
	}
	return done == size ? size : -1;
}

AV_EXPORT int vdprintf(int fd, const char *fmt, va_list args)
{
	CALL c = call_begin_data(fd);

	return c.s == NULL ? NEXT(vdprintf)(fd, fmt, args) : file_print(c.s, fmt, args);
}

AV_EXPORT int dprintf(int fd, const char *fmt, ...)
{
	va_list args;
	int size;

	va_start(args, fmt);
	size = vdprintf(fd, fmt, args);
	va_end(args);
	return size;
}

AV_EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list args;
	int size;

	(void)flag;
	va_start(args, fmt);
	size = vdprintf(fd, fmt, args);
	va_end(args);
	return size;
}

AV_EXPORT int __vdprintf_chk(int fd, int flag, const char *fmt, va_list args)
{
	(void)flag;
	return vdprintf(fd, fmt, args);
}
