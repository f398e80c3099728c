#include <infiniband/verbs.h>
#include "base/low.h"
