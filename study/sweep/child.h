/*
 * child.h - another program that prints a document: dpbench itself for a cell of a sweep, a
 * launcher that starts dpbench, or another build.
 */
#ifndef DPB_STUDY_SWEEP_CHILD_H
#define DPB_STUDY_SWEEP_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/signals.h"
#include "dpbench/status.h"

struct dpb_child {
    const char *program; /* its path */
    const char *const *words;
    /* Its standard input, for dpbench alone: its messages go to this process's standard error, it
     * stops and goes on with this process (^Z), and is killed when this process ends. NULL: it has
     * no input, its messages are kept, and it is ended by SIGTERM. */
    const char *input;
    const char *without; /* a variable to remove from its environment; NULL: none */
    int64_t limit_ns;    /* to its end; 0: none */
    int orders;          /* a descriptor that it inherits; 0: none */
    /* A launcher: it may never end after its document, so it gets 10 s. SIGINT is passed on as
     * SIGTERM, since srun needs SIGINT twice. */
    bool lingers;
};

struct dpb_child_end {
    int code;          /* 128 + N: it was killed by signal N */
    int signal_number; /* a signal to this process meanwhile, passed on; 0: none */
    bool late;         /* it was ended, at the limit or after the document */
    bool whole;        /* if it lingers: the document is whole */
    char *out, *err;   /* @owned: dpb_child_release; ended by NUL */
    size_t out_bytes, err_bytes;
};

/* One that runs: a process group of its own. */
struct dpb_child_running {
    pid_t pid;
    int in, out, err; /* in: -1: none; err: -1: this process's own */
};

/* Starts the program. `held`: the signals that this process holds for it. */
dpb_status dpb_child_start(const struct dpb_child *child, const struct dpb_signals *held,
                           struct dpb_child_running *running);
/* Waits for its end; one that was late, or got a signal, leaves nothing of its group. */
dpb_status dpb_child_take(struct dpb_child_running *running, struct dpb_child_end *end);
/* ^Z for all of them: each stops, then this process; it comes back when it is continued. */
void dpb_child_suspend(const struct dpb_child_running *const *running, size_t n);

/* Runs the program to its end, in a process group of its own. *end is filled if the status is
 * DPB_OK; release it in any case. */
dpb_status dpb_child_run(const struct dpb_child *child, struct dpb_child_end *end);
void dpb_child_release(struct dpb_child_end *end);

#endif
