#include "door.h"
