#include "queue/bad_test.h"

int test(void)
{
	printf("a test may print");
	return socket(1, 2, 3);
}
