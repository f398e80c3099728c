unsigned long now(void)
{
	return clock_gettime(1, 0);
}
