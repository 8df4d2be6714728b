/*
 * stall.h - which ranks make no progress, private to the launcher: from their status pages, and
 * from what the system says of their processes.
 *
 * A rank gives a sign of life when its status page changes, and when it computes, reads, writes or
 * waits for a disk: a first step that compiles for minutes, or a long evaluation, is no stall. A
 * rank that waits for another gives none.
 *
 *     nobody's sign for run.stall_warning_s: said once for all that are late, with where the ranks
 *     are
 *     a worker's that waits for nobody either, for run.timeout_s: it is stuck, and the job ended
 *     no worker's for longer: all are stopped, or none heeds its deadline: likewise
 *     a rank that is there run.timeout_s after another has ended, all having left together:
 *     likewise
 *
 * The deadlines of those that wait end a job before the second does; it is there for jobs in which
 * nobody waits for who is stuck.
 */
#ifndef DPB_CORE_LAUNCH_STALL_H
#define DPB_CORE_LAUNCH_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_run;

enum { STALL_PICTURE_BYTES = 8192, STALLS_SAID = 8 };

/* The launcher's state of it, zeroed at the start. */
struct stall_watch {
    int64_t looked_ns, first_left_ns; /* the first rank that ended as it should; 0: none */
    uint32_t n_said, n_looks;

    char picture[STALL_PICTURE_BYTES]; /* when the job was ended: a line a rank */
    char late[288]; /* who the one whose deadline passed was waiting for at last */
};

/* Of one rank. */
struct stall_sign {
    int64_t note_ns; /* the page's since_ns when last seen, and its step ... */
    uint64_t step;
    int64_t sign_ns;    /* ... and when that was new; or the process was seen at work */
    int64_t sampled_ns; /* 0: the process was not looked at since */
    int64_t cpu_ns;
    uint64_t io_bytes;
};

/* Called in the launcher's loop; looks at most four times a second, and with more than 64 ranks
 * more rarely. Warns. Returns a rank that is
 * to be ended, with the reason in its `fault`; UINT32_MAX: none. */
uint32_t stall_look(struct job_run *run, int64_t now_ns);
/* Of one rank: keeps its sign of life, sign_ns. */
void stall_look_at(struct job_run *run, uint32_t rank, int64_t now_ns);
/* The job was suspended for so long: nobody could give a sign. */
void stall_forgive(struct job_run *run, int64_t suspended_ns);
/* The job is about to be ended: keeps where each rank is and since when, and who is late. */
void stall_keep_picture(struct job_run *run, int64_t now_ns);

#endif
