#include "queue/cq.h"
#include "base/low.h"
#include "../lib/ibverbs/door.h"
#include <stdio.h>
