#include "base/pot.h"
static struct lock shelf_lock, other_lock;
static struct {
	struct lock lock;
	int pots;
} shelf;
static struct lock cellar_lock;
