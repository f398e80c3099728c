#include "queue/cq.h"
