/*
 * budget.h - how long a sweep goes on: the time that repeats of disturbed runs may take, and the
 * moment after which no run starts. On a busy machine every run may be disturbed, and a sweep that
 * repeats each as often as it may takes several times as long.
 */
#ifndef DPB_STUDY_SWEEP_BUDGET_H
#define DPB_STUDY_SWEEP_BUDGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "study/sweep/sweep_cells.h"

struct dpb_sweep_budget {
    double limit_s;  /* since the sweep began no run starts; INFINITY: always */
    double repeat_s; /* for all repeats of disturbed runs; NaN: as long as the other runs took */
    double runs_s, repeats_s;                            /* spent so far */
    size_t n_repeats, n_left_disturbed, n_jobs, n_never; /* jobs; those that the limit left out */
};

struct dpb_sweep_budget dpb_sweep_budget_of(const struct dpb_sweep_options *options, size_t n_jobs);
/* What repeats may take in all. */
double dpb_sweep_budget_repeats_s(const struct dpb_sweep_budget *budget);
/* Whether a run may start so long after the sweep began. */
bool dpb_sweep_budget_starts(const struct dpb_sweep_budget *budget, double elapsed_s);
/* Counts a run that ended, the first of its job or a repeat. */
void dpb_sweep_budget_spend(struct dpb_sweep_budget *budget, double run_s, bool is_repeat);
/* Whether a disturbed run, which took `run_s`, may be repeated. A refusal is counted. */
bool dpb_sweep_budget_repeats(struct dpb_sweep_budget *budget, double run_s, double elapsed_s);
/* The runs to expect for n_left jobs, when n_done jobs took n_runs: each may be disturbed again. */
uint64_t dpb_sweep_budget_left(size_t n_left, uint64_t n_runs, size_t n_done);
/* Puts `repeats_of_disturbed` and, with a limit, `runs_left_out` into the document, and doubts into
 * its warnings. */
void dpb_sweep_budget_report(const struct dpb_sweep_budget *budget, json_t *document);

#endif
