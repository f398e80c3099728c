#include "base/done.h"
#include "base/later.h"
#include "base/oven.h"
