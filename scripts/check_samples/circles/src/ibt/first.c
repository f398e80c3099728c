#include "ibt/first.h"
#include "ibt/ibt.h"

void second_run(void);

void first_run(void)
{
	second_run();
}

void ibt_poll(void)
{
	first_run();
}
