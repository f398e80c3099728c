/* second.h: the other one. */
void second_run(void);
