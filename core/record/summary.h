/*
 * summary.h - sums up the journals of a job's ranks: step times, rate, breakdown, loss. Computes on
 * memory alone; result.c makes the JSON.
 *
 * All times are on one clock. Where workers wait for each other, a step of the run ends when its
 * last worker ends it, and begins when the step before has ended. Where workers do not wait for
 * each other, a step of the run is the time in which all of them together do a global batch, while
 * all of them run. Either way the steps add up to the time that passed, pauses left out.
 */
#ifndef DPB_CORE_RECORD_SUMMARY_H
#define DPB_CORE_RECORD_SUMMARY_H

#include "base/stats.h"
#include "dpbench/status.h"
#include "measure/journal.h"

/* Below either, the timed part allows no conclusion: processes are scheduled and quotas are handed
 * out in periods of up to 100 ms, and a median of few steps is any of them. */
#define DPB_LEAST_STEPS 10
#define DPB_LEAST_NS INT64_C(500000000)

/* Means a step, in nanoseconds. Each step has the parts of the worker that ends it last; where
 * workers do not wait for each other, the parts of all of them together. The first six, up to
 * comm_exposed, sum to the step. */
enum { DPB_BREAKDOWN_STEP = 6, DPB_BREAKDOWN = 9 };
struct dpb_breakdown {
    double parts[DPB_BREAKDOWN];
};
extern const char *const dpb_breakdown_names[DPB_BREAKDOWN]; /* as in breakdown_ns of results */
/* The nanoseconds of a part in one record, by the part's number among these names. */
int64_t dpb_record_part(const struct dpb_record *record, size_t part);

struct dpb_summary_args {
    const struct dpb_journal *const *journals; /* by rank, workers first; NULL: none */
    uint32_t n_workers, n_servers;
    uint64_t global_batch; /* samples of a step over all workers */
    bool local;            /* the workers do not wait for each other in each step */
    /* By worker: died, and the others trained on (run.survive). Its steps count until its death.
     * From then on the time in which all run is the time in which the others run. NULL: none. */
    const bool *lost;
};

struct dpb_summary {
    uint64_t warmup_steps;   /* before the first timed one */
    uint64_t n_steps;        /* timed steps of the run */
    int64_t *step_ns;        /* @owned */
    int64_t *warmup_step_ns; /* @owned: of the steps before */
    uint64_t n_warmup;       /* its length; 0 where the workers do not wait for each other */
    int64_t elapsed_ns;      /* sum of step_ns */
    struct dpb_stats rate;   /* samples/s; NaN where nothing was timed */
    /* All timed samples by the time in which any worker ran timed steps. The mean rate, but where
     * workers do not wait for each other. */
    double first_to_last;
    struct dpb_breakdown breakdown;
    double bytes_per_step; /* payload of all processes */
    uint64_t n_losses;     /* steps from the first that every worker completed that is left */
    double *loss;          /* @owned; mean over the workers */
    double *accuracy;      /* @owned; likewise, of training */
    bool steady, gated, oversubscribed;
    bool too_short; /* fewer steps or less time than DPB_LEAST_* */
    dpb_verdict pattern, exchange, replicas, after, steps; /* the worst of all workers */
    const char *steps_reason; /* @borrowed from a journal; NULL where `steps` is pass or fail */
    bool no_common_window;    /* local: no global batch was done while all workers were running */
};

/* DPB_NO_MEMORY or DPB_OK. Incomplete and empty journals give a summary of their records. */
dpb_status dpb_summary_make(const struct dpb_summary_args *args, struct dpb_summary *summary);
void dpb_summary_release(struct dpb_summary *summary);

/* The timed steps of one rank alone: their times and their breakdown. */
void dpb_summary_of_rank(const struct dpb_journal *journal, uint64_t timed_from,
                         struct dpb_stats *step_ns, struct dpb_breakdown *breakdown);

/* The number of complete records; safe while the rank still writes. */
uint64_t dpb_journal_records(const struct dpb_journal *journal);

#endif
