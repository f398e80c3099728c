/* printf("in a comment is fine"); socket(1) too */
int bad(struct ops *o)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	o->send(fd);
	o->ops.connect(fd);
	sendmsg(fd, 0, 0);
	clock_gettime(CLOCK_MONOTONIC, 0);
	strcpy(a, "sprintf(x)");
	sprintf(a, "%d", 1);
	printf("x");
	pthread_create(&t, 0, f, 0);
	return rand() + my_rand() + path_send(fd);
}
