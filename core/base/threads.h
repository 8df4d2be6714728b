/*
 * threads.h - the processor time of this process that core's own threads have not taken: it is that
 * of a device's compute threads, of a plugin or of a library.
 */
#ifndef DPB_CORE_BASE_THREADS_H
#define DPB_CORE_BASE_THREADS_H

#include <stdint.h>

/* A thread of core calls the first where it begins and the second where it ends. */
void dpb_thread_enter(void);
void dpb_thread_leave(void);
/* Of all other threads, since the process began. Any thread. */
int64_t dpb_threads_others_ns(void);

#endif
