/* hostile.h: what victim and hostile process agree on. */
#ifndef TEST_FAULT_HOSTILE_H
#define TEST_FAULT_HOSTILE_H

enum {
	HOSTILE_QPS = 4,
	HOSTILE_KEYS = 6,
	HOSTILE_PSN = 77,
	HOSTILE_QKEY = 0x1234,
	HOSTILE_SECRET = 0x5e, /* what no key gives away */
	HOSTILE_OPEN = 0x11,
};

#endif
