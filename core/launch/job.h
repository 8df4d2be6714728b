/*
 * job.h - a job for the launcher, and its outcome.
 */
#ifndef DPB_CORE_LAUNCH_JOB_H
#define DPB_CORE_LAUNCH_JOB_H

#include "machine/load.h"
#include "world/board.h"

struct dpb_monitor_series;
struct dpb_party;

/* The layout of a journal for the launcher of another part, which mirrors it. A head has at
 * `count_at` the number (uint64_t) of records that follow. Each record has a time (int64_t,
 * CLOCK_MONOTONIC) at `time_at`. The written part of the last `tail_bytes` is mirrored unchanged,
 * at the end. record_bytes = 0: so is all of the journal. */
struct dpb_journal_shape {
    size_t head_bytes, count_at, record_bytes, time_at, tail_bytes;
};

/* A rank's end that other ranks may come back from: by a signal, without a word, or past a
 * deadline. No loss: a rank that says why it fails, since it would say so again. */
struct dpb_loss {
    uint32_t rank;
    const char *cause;
    int64_t sign_ns, known_ns; /* the rank's last change of phase; when the launcher knew */
};

/* How all ranks start again. Both are @borrowed until the next such start or the end of the job. */
struct dpb_again {
    const char *config;
    int checkpoint; /* the file of struct dpb_board_kept that it continues; -1: none of them */
};

/* A turn of a job that a sweep parks between turns (turns.h). Its ranks did not run from
 * `parked_ns` to `go_ns`; then they ran until `to_ns`. By dpb_now_ns. */
struct dpb_turn {
    int64_t block; /* of the sweep; negative: no turn, but the time until an end or a signal */
    int64_t parked_ns, go_ns, to_ns;
    double core_to_core_ns; /* before it: machine/latency.h */
};

/* All turns of a job, and the load of its cores during them. */
struct dpb_turns {
    struct dpb_turn *at; /* @owned; NULL: the job takes no orders */
    size_t n;
    struct dpb_load_sample spent; /* differences added up: machine/load.h */
};

struct dpb_job {
    uint32_t n_workers, n_servers;
    const uint32_t *machines;       /* by rank: launch/machines.h; NULL: one for all */
    const char *config;             /* JSON text handed to every rank */
    size_t journal_bytes;           /* a rank */
    const char *const *environment; /* NAME=VALUE to add, ended by NULL; may be NULL */
    int64_t timeout_ns;             /* run.timeout_s */
    int64_t stall_warning_ns;       /* run.stall_warning_s; 0: never */
    struct dpb_party *party;        /* with another launcher; NULL: this one starts all ranks */
    struct dpb_journal_shape shape; /* with a party */
    bool survive;                   /* run.survive: only where this launcher starts all ranks */
    /* run.restart: after so many losses all ranks start again; without a party, or with one whose
     * launchers outlive their ranks' connections (dpb_party_reconnect). */
    uint32_t restarts;
    int64_t rejoin_ns;          /* run.rejoin: likewise, after the loss of another part */
    struct dpb_board_kept kept; /* for the board */
    /* All ranks have ended. */
    dpb_status (*again)(void *context, const struct dpb_loss *loss, struct dpb_board *board,
                        struct dpb_again *again);
    /* In a part other than the head: the ranks' next configuration here, by the head's. The
     * checkpoint that it continues is in the first of this launcher's files. */
    dpb_status (*follow)(void *context, const struct dpb_again *head, struct dpb_again *again);
    void *context;
    bool keep_pmix; /* with a party: the strategy needs the launcher's runtime */
    int orders;     /* of a sweep, without a party: turns.h; 0: none */
    uint32_t cores; /* with orders: to which the ranks together are bound; 0: they are not */
    bool (*warm)(struct dpb_board *board); /* with orders: all workers are in their timed steps */
    /* With orders: samples/s of turn i, when a later turn ends; NaN: its last step goes on. */
    double (*rate)(const struct dpb_turns *turns, size_t i, struct dpb_board *board);
    /* With orders and run.monitor: dpb_monitor_turn, for the series of rank 0, with which the
     * journal's tail begins; NULL: no run.monitor. */
    int64_t (*sample)(const char *root, struct dpb_monitor_series *series, const int32_t *pids,
                      uint32_t n_pids, bool begins, int64_t ranks_ns);
    struct dpb_board_about about; /* with a label: the job is shown on stderr by `live` */
    /* Writes a line with the state of the job, at most `columns` wide. */
    void (*live)(struct dpb_board *board, size_t columns, char *line, size_t capacity);
};

struct dpb_job_outcome {
    dpb_status status;              /* of the job: the first cause's, DPB_OK or DPB_INTERRUPTED */
    int exit_code;                  /* for the shell: 130 and 143 after signals */
    uint32_t culprit;               /* rank of the first cause; UINT32_MAX: none */
    char cause[2 * DPB_BOARD_TEXT]; /* "rank 1 (host, pid 7) was killed by signal 9 ..." */
    struct dpb_board *board;        /* @owned by the caller: dpb_board_destroy */
    struct dpb_turns turns;         /* with orders: turns.at is @owned by the caller */
};

#endif
