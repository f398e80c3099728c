/* user.c: arguments in the application's memory: addresses, values of options, vectors.
 * In:    the application's pointers        Out: copies of its bytes, or -EFAULT
 * Runs:  the application's threads         Locks: none
 */
#include "user.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

int user_take_addr(struct sockaddr_storage *out, const struct sockaddr *addr, socklen_t len)
{
	if (len < sizeof(addr->sa_family) || len > sizeof(*out))
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	return user_copy(out, addr, len);
}

int user_give_addr(const void *from, socklen_t size, struct sockaddr *addr, socklen_t *len)
{
	socklen_t room;
	int err = user_copy(&room, len, sizeof(room));

	if (err == 0)
		err = user_copy(addr, from, MIN(room, size));
	return err < 0 ? err : user_copy(len, &size, sizeof(size));
}

int user_give(const void *from, socklen_t size, void *value, socklen_t *len)
{
	socklen_t room;
	int err = user_copy(&room, len, sizeof(room));

	room = MIN(room, size);
	if (err == 0)
		err = user_copy(value, from, room);
	return err < 0 ? err : user_copy(len, &room, sizeof(room));
}

static int iov_check(const struct iovec *iov, size_t count)
{
	size_t total = 0;

	for (size_t i = 0; i < count; i++) {
		if (iov[i].iov_len > (size_t)SSIZE_MAX - total)
			return -EINVAL;
		total += iov[i].iov_len;
	}
	return 0;
}

int user_take_iov(struct user_iov *v, const struct iovec *iov, size_t count)
{
	int err;

	v->iov = v->few;
	if (count > IOV_MAX)
		return -E2BIG;
	if (count > USER_IOV_FEW)
		v->iov = malloc(count * sizeof(*v->iov));
	if (v->iov == NULL)
		return -ENOMEM;
	err = user_copy(v->iov, iov, count * sizeof(*iov));
	return err == 0 ? iov_check(v->iov, count) : err;
}

void user_drop_iov(struct user_iov *v)
{
	if (v->iov != v->few)
		free(v->iov);
}
