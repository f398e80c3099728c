/* task.h: what the kernel says of another process. */
#ifndef BASE_TASK_H
#define BASE_TASK_H

#include <stdbool.h>
#include <sys/types.h>

/* The state of a process as in /proc/PID/stat: 'R' runs or is runnable, 'S' sleeps, 'D' waits in
 * the kernel, 'T' is stopped, and so on. 0: there is none, or /proc cannot be read. Opens a
 * descriptor for the moment; any context that may make system calls. */
char task_state(pid_t pid);
/* Does the process end, or has it ended and nobody waited for it? Its sockets close after it has
 * begun to end, and before its pidfd is readable. As task_state. */
bool task_is_exiting(pid_t pid);
/* Returns the number that the process of a pidfd has in /proc here. No other process can have it
 * while this answers the same. 0: it has none here, has ended, or /proc cannot be read. As
 * task_state. */
pid_t task_of(int pid_fd);
/* Tells whether /proc shows the descriptors of process `pid` to this one, to look at and to open:
 * the right to read it by ptrace(2), which the kernel refuses if that process is another user's or
 * not dumpable. Yama refuses the right to attach, which /proc/PID/mem needs. As task_state. */
bool task_shows_files(pid_t pid);

#endif
