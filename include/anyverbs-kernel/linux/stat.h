/* stat.h: permissions of files. */
#ifndef ANYVERBS_LINUX_STAT_H
#define ANYVERBS_LINUX_STAT_H

#include <sys/stat.h>

#define S_IRUGO (S_IRUSR | S_IRGRP | S_IROTH)
#define S_IWUGO (S_IWUSR | S_IWGRP | S_IWOTH)

#endif
