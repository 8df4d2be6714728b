/*
 * stall.h - finds ranks that make no progress, private to the launcher: by their status pages, and
 * by the system's data about their processes.
 *
 * A rank gives a sign of life when its status page changes, and when it computes, reads, writes or
 * waits for a disk: a first step that compiles for minutes, or a long evaluation, is no stall. A
 * rank that waits for another gives none.
 *
 *     no sign of a worker and of the rank that it waits for, for run.stall_warning_s: one warning
 *     for all late ranks, with where each rank is
 *     no sign of a worker that waits for no rank, for run.timeout_s: it is stuck, the job is ended
 *     no sign of any worker, for longer: all are stopped, or none heeds its deadline: likewise
 *     a rank still runs run.timeout_s after another has ended, though all leave together: likewise
 *
 * The deadlines of waiting ranks end a job before the second rule does. The second rule is for jobs
 * in which no rank waits for the stuck one.
 */
#ifndef DPB_CORE_LAUNCH_STALL_H
#define DPB_CORE_LAUNCH_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_run;

enum { STALL_PICTURE_BYTES = 8192, STALLS_SAID = 8 };

/* The launcher's state of this watch, zeroed at the start. */
struct stall_watch {
    int64_t looked_ns, first_left_ns; /* the first rank that ended as it should; 0: none */
    uint32_t n_said, n_looks;

    char picture[STALL_PICTURE_BYTES]; /* when the job was ended: a line a rank */
    char late[288]; /* the rank that the waiter whose deadline passed waited for */
};

/* The sign of life of one rank. */
struct stall_sign {
    int64_t note_ns; /* the page's since_ns when last seen, and its step ... */
    uint64_t step;
    int64_t sign_ns;    /* ... and when that changed, or the process was at work */
    int64_t sampled_ns; /* 0: not sampled since */
    int64_t cpu_ns;
    uint64_t io_bytes;
};

/* Called in the launcher's loop; looks at most four times a second, and with more than 64 ranks
 * more rarely. Warns. Returns a rank that the launcher must end, with the reason in its `fault`;
 * UINT32_MAX: none. */
uint32_t stall_look(struct job_run *run, int64_t now_ns);
/* Looks at one rank and keeps the time of its sign of life, sign_ns. */
void stall_look_at(struct job_run *run, uint32_t rank, int64_t now_ns);
/* The job was suspended for suspended_ns: no rank could give a sign. */
void stall_forgive(struct job_run *run, int64_t suspended_ns);
/* Before the job is ended: keeps where each rank is and since when, and which rank is late. */
void stall_keep_picture(struct job_run *run, int64_t now_ns);

#endif
