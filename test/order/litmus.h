/* litmus.h: small programs of which it is known what they may do. `bare`: without what orders
 * them. */
#ifndef TEST_ORDER_LITMUS_H
#define TEST_ORDER_LITMUS_H

void litmus_flag_0(void);
void litmus_flag_1(void);
void litmus_flag_0_bare(void);
const char *litmus_both(void);

void litmus_tell(void);
void litmus_tell_bare(void);
void litmus_hear(void);
void litmus_hear_bare(void);
const char *litmus_heard(void);

void litmus_count(void);
void litmus_count_bare(void);
const char *litmus_counted(void);

const char *litmus_nothing(void);

#endif
