/* tun.c: the TUN device: made, with a carrier or without. It goes with its descriptor.
 * In:    the options    Out: a descriptor
 * Runs:  the main thread; tun_carrier anywhere    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tool.h"

static int tun_fail(const struct tool_options *o, int err)
{
	if (err == -EPERM || err == -EACCES)
		fprintf(stderr,
			"anyverbs: ipoib: no right to make the interface %s (CAP_NET_ADMIN). Run "
			"it "
			"as root, in a network\nnamespace of the host's own (--netns NAME, made by "
			"`ip netns add NAME`), or as an ordinary user in one that\nis yours: "
			"`unshare --user --map-root-user --net`\n",
			o->name);
	else if (err == -ENOENT || err == -ENODEV || err == -ENXIO)
		fputs("anyverbs: ipoib: this kernel has no /dev/net/tun (module tun; in a "
		      "container `--device /dev/net/tun`)\n",
		      stderr);
	else if (err == -EBUSY || err == -EEXIST)
		fprintf(stderr, "anyverbs: ipoib: there is an interface %s already; --name gives "
				"another name\n", o->name);
	else
		fprintf(stderr, "anyverbs: ipoib: no interface %s: %s\n", o->name, strerror(-err));
	return err;
}

int tun_open(const struct tool_options *o, u32 *ifindex)
{
	struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_TUN_EXCL };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC), err;

	if (fd < 0)
		return tun_fail(o, -errno);
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", o->name);
	/* of a type whose link addresses have 16 bytes, so that a neighbour's GID is one */
	if (ioctl(fd, TUNSETIFF, &r) == 0 &&
	    ioctl(fd, TUNSETLINK, (unsigned long)ARPHRD_TUNNEL6) == 0) {
		*ifindex = if_nametoindex(r.ifr_name);
		tun_carrier(fd, false);
		return fd;
	}
	err = -errno;
	close(fd);
	return tun_fail(o, err);
}

void tun_carrier(int fd, bool on)
{
	unsigned int value = on;

	(void)ioctl(fd, TUNSETCARRIER, &value); /* a kernel before 5.0 has it always */
}
