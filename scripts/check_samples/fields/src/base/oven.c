#include "base/oven.h"
