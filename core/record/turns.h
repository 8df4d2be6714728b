/*
 * turns.h - the measurements of a job that ran in turns (launch/turns.h), by the clock of its ranks
 * alone: time in which they were parked is no step's.
 *
 * A turn's rate counts the share of a step that the turn's border cuts: complete steps alone bias
 * the rate by 8 % at 10 steps a turn. The first 20 ms after `go` do not count: caches and clocks
 * are another's.
 */
#ifndef DPB_CORE_RECORD_TURNS_H
#define DPB_CORE_RECORD_TURNS_H

#include <jansson.h>

#include "launch/job.h"
#include "measure/journal.h"
#include "plan/plan.h"

#define DPB_TURNS_REST_NS INT64_C(20000000)

/* Samples/s of turn i of a job that is parked after a later turn; NaN: the step that the turn's end
 * cut goes on. The report has the same rate. */
double dpb_turns_rate(const struct dpb_turns *turns, size_t i, struct dpb_board *board);
/* Steps of a worker, and its time within steps, between two moments. *k: its first record that may
 * reach into that time; then its last one. turns: the steps have parked time in them; NULL: the
 * moments are of the ranks' clock. */
double dpb_turns_steps(const struct dpb_journal *journal, const struct dpb_turns *turns,
                       int64_t from_ns, int64_t to_ns, uint64_t *k, double *seconds);
/* All processes have ended: moves the journals of the board to that clock, once. The parts of a
 * step shrink with it: over many steps each part loses its share. The load is that of the turns.
 * Without orders it does nothing. */
void dpb_turns_unpark(const struct dpb_turns *turns, struct dpb_board *board);
/* Adds `turns` to the result of such a job: by turn its block, seconds, steps and samples/s. */
void dpb_turns_report(const struct dpb_turns *turns, struct dpb_board *board,
                      const struct dpb_experiment *experiment, json_t *result);

#endif
