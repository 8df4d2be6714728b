/*
 * target.h - time to accuracy: the seconds and samples that the repeats of a sweep's cell needed to
 * reach eval.target, and the comparison of cells by them. Made from documents alone.
 *
 * All means are of logarithms, so the mean seconds are the mean samples (statistical efficiency) by
 * the mean samples/s until then (hardware efficiency). A run that missed the target is censored: it
 * bounds seconds, epochs and samples of its row from below, and enters the mean of samples/s alone.
 *
 * Koliousis et al.: Crossbow: Scaling Deep Learning with Small Batch Sizes on Multi-GPU Servers.
 * PVLDB 12(11), 2019. DAWNBench, Coleman et al. 2017.
 */
#ifndef DPB_STUDY_DOCUMENT_TARGET_H
#define DPB_STUDY_DOCUMENT_TARGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "study/document/comparison.h"

/* A row's `to_target` (docs/results.md) from the n good runs of its cell, the last of each repeat.
 * Disturbed runs count where a repeat has no other: their samples are as good. `n_failed` further
 * repeats have missed the target. NULL: no run has a target. @owned. */
json_t *dpb_target_of_runs(const json_t *const *runs, size_t n, size_t n_failed, int64_t repeats);
/* Puts `to_target.rank` into rows[]: 1 is the soonest of all rows with this target, model and data.
 * Null where a run missed, or where each worker trains a model of its own. */
void dpb_target_rank(json_t *rows);
/* Whether two rows train the same model on the same data, and evaluate it alike: by their axes. */
bool dpb_target_same_task(const json_t *a, const json_t *b);
/* Whether two rows train for the same: the target, and the axes of model and data. */
bool dpb_target_same_contest(const json_t *a, const json_t *b);
/* Whether a run of any row missed the target. */
bool dpb_target_missed(const json_t *rows);

/* Row b by row a in `part` ("seconds", "samples" or "samples_per_s"). `paired`: the rows ran by
 * turns; they are compared by repeat where at least two repeats of both reached the target. Rows
 * whose repeats have the same seeds, each once, are compared by seed in any case. The
 * ratio is b / a; DPB_FASTER: b is better (less time, fewer samples, more samples/s). */
void dpb_target_compare(const json_t *a, const json_t *b, const char *part, bool paired,
                        struct dpb_comparison *comparison);
/* The same, with the outcome in words: "faster"; "fewer" samples; "no conclusion (disturbed)". If a
 * run missed the target, compares nothing. Returns whether the comparison allows a conclusion. */
bool dpb_target_conclude(const json_t *a, const json_t *b, const char *part, bool paired,
                         struct dpb_comparison *comparison, char *verdict, size_t capacity);

#endif
