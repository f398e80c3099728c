#include "ibt/second.h"
#include "ibt/first.h"
#include "ibt/ibt.h"

void second_run(void)
{
}
