/*
 * proc.h - reads small files of /proc and /sys, and a process's state from them.
 */
#ifndef DPB_CORE_MACHINE_PROC_H
#define DPB_CORE_MACHINE_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dpbench/host.h"

/* Opens the file of that path for reading. @owned: fclose. NULL: the file cannot be opened. */
DPB_PRINTF(1, 2) FILE *dpb_proc_open(const char *format, ...);

/* The first line of that file, without its end. False: the file cannot be read, or is empty. */
DPB_PRINTF(3, 4) bool dpb_proc_line(char *line, size_t size, const char *format, ...);

/* The number that the file starts with. False: there is none, and *number stays as it was. */
DPB_PRINTF(2, 3) bool dpb_proc_count(uint64_t *number, const char *format, ...);

struct dpb_proc {
    char state;        /* of its main thread: R, S, D (waits for a disk), T (stopped), Z, ... */
    int32_t parent;    /* its process id; 0: outside of this PID namespace */
    int64_t cpu_ns;    /* of all its threads, in the steps of the system's clock tick */
    uint64_t io_bytes; /* read and written so far; 0 where the system does not report them */
};

/* `root` stands before /proc: "", but for tests. False: there is no such process. */
bool dpb_proc_read(const char *root, int32_t pid, struct dpb_proc *proc);

/* By SIGSTOP, or by a debugger. */
static inline bool dpb_proc_is_stopped(const struct dpb_proc *proc)
{
    return proc->state == 'T' || proc->state == 't';
}

/* Whether the process was started with `name` in its environment. False, too, for a process of
 * another user, which this process may not read. */
bool dpb_proc_has_variable(const char *root, int32_t pid, const char *name);

enum { DPB_PROC_FUNCTION_BYTES = 64 };

/* The kernel's function in which its main thread sleeps: futex_wait_queue, say. False: it does not
 * sleep, or the system does not report it. */
bool dpb_proc_sleeps_in(const char *root, int32_t pid, char function[DPB_PROC_FUNCTION_BYTES]);

/* The number behind `name` in a file of lines "NAME NUMBER ..."; UINT64_MAX: not there. */
uint64_t dpb_proc_number(const char *directory, const char *file_name, const char *name);

/* Nanoseconds of a clock tick of /proc. */
int64_t dpb_proc_tick_ns(void);

#endif
