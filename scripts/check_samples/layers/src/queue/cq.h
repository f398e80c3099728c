#include "driver/roce/roce.h"
