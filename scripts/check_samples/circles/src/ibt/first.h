/* first.h: calls second.c, which calls it by an include. */
void first_run(void);
