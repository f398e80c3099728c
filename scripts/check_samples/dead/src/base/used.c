#include "base/used.h"
