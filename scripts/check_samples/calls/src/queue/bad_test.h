static inline int thread(void)
{
	return pthread_create(0, 0, 0, 0);
}
