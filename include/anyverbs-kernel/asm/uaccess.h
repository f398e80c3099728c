/* uaccess.h: as linux/uaccess.h. */
#include <linux/uaccess.h>
