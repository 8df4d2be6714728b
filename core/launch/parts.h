/*
 * parts.h - the work of a job's parts while it runs, private to the launchers: their ranks
 * (ranks.c), the head's side (head.c), the others' (part.c), and their messages to each other.
 */
#ifndef DPB_CORE_LAUNCH_PARTS_H
#define DPB_CORE_LAUNCH_PARTS_H

#include "launch/job.h"
#include "launch/party.h"

#define PARTS_PAGE_NS INT64_C(250000000)    /* how often a part sends its rank's page */
#define PARTS_PING_NS INT64_C(500000000)    /* ... a ping */
#define PARTS_JOURNAL_NS INT64_C(500000000) /* ... its journal */
/* Silence beyond run.timeout_s: less than a stuck rank gets (stall.c), so that the cause comes
 * first. */
#define PARTS_SILENCE_NS INT64_C(1000000000)

enum { PARTS_PIECE_BYTES = 64 * 1024 };

/* LINK_PAGE: the rank's page follows, up to its `status` or, when there is an error or a warning,
 * whole. Times are the head's. */
struct page_news {
    int64_t silent_ns; /* since its last sign of life (stall.h); -1: the part did not look */
    char state;        /* of its process, as in struct dpb_proc; 0: it has none */
};

/* LINK_JOURNAL: bytes of the journal from `offset` on follow. */
struct journal_piece {
    uint64_t offset;
};

struct ended_news {
    int32_t wait_status;
    int64_t ended_ns; /* the head's clock */
};

/* LINK_PING, and back as LINK_PONG with the head's clock. */
struct ping {
    int64_t sent_ns, head_ns;
};

/* ---- ranks.c, for all launchers ------------------------------------------------------------ */

dpb_status job_take_signals(struct job_run *run);
void job_release_signals(struct job_run *run);
/* The next signal that came; 0: none. */
int job_next_signal(const struct job_run *run);
/* Starts all ranks of a local job. */
dpb_status job_start_ranks(struct job_run *run);
/* Starts this part's rank: sends the job to the process, which is already there. */
dpb_status job_greet_rank(struct job_run *run);
/* Whether a process of this launcher has ended; reaps it with its group. */
bool job_reap(struct job_run *run, uint32_t rank);
void job_kill(struct job_run *run, uint32_t rank);
void job_kill_all(struct job_run *run);
/* For the head, once a rank's end is fully known. */
void job_rank_ended(struct job_run *run, uint32_t rank);
void job_end(struct job_run *run);
void job_interrupt(struct job_run *run, uint32_t n_interrupts, int signal_number);
/* The head's, to all other parts; without parts it does nothing. */
void job_tell_parts(struct job_run *run, link_op op, const void *value, size_t bytes);

/* ---- head.c --------------------------------------------------------------------------------- */

/* Gives the store the ranks' connections. */
void head_begin(struct job_run *run);
/* Both for a job with parts. watch: fills one entry a part, for poll. serve: after poll, handles
 * the received frames. */
void head_watch(const struct job_run *run, struct pollfd *fds);
void head_serve(struct job_run *run, const struct pollfd *fds, int64_t now_ns);

/* ---- part.c --------------------------------------------------------------------------------- */

/* dpb_launch of a part that is not the head. */
dpb_status part_launch(const struct dpb_job *job, struct dpb_job_outcome *outcome);

#endif
