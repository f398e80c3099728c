/* ibt.h: the room's header belongs to no role. */
void ibt_poll(void);
