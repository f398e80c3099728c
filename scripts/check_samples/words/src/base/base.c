/* FIXME later */
int base;
