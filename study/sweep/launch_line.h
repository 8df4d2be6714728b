/*
 * launch_line.h - the line that starts the cells of a sweep, as words.
 *
 *     mpirun -np {ranks} --map-by ppr:{per_machine}:node
 *
 * Blanks separate words. "any text" and 'any text' keep their blanks, also as parts of a word; no
 * quote holds one of its own kind. {NAME} is a number of the cell, within quotes too; {{ is a
 * brace. No shell reads the words: $, * and \ mean nothing.
 */
#ifndef DPB_STUDY_SWEEP_LAUNCH_LINE_H
#define DPB_STUDY_SWEEP_LAUNCH_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "dpbench/status.h"
#include "study/sweep/sweep_cells.h"

/* The numbers: {ranks} is workers + servers. {per_machine} fills `machines` evenly, rounded up to
 * whole places; {machines} is the number of machines that then have ranks. */
struct dpb_launch_size {
    uint32_t workers, servers;
    uint32_t learners; /* workers of a place */
    uint32_t machines; /* 0: not known */
};

/* `name` begins the messages. DPB_USAGE: no program, a quote or brace without its end, an unknown
 * placeholder, or one that needs a number of machines. *words, ended by NULL, is @owned:
 * dpb_sweep_list_destroy(*words, *n_words). */
dpb_status dpb_launch_line(const char *line, const char *name, const struct dpb_launch_size *size,
                           char ***words, size_t *n_words);

/* Refuses a template that launch_line.h refuses, and keys that need one. */
dpb_status dpb_sweep_launch_check(const struct dpb_config *config, struct dpb_sweep *sweep);
/* In a cell's configuration: sets comm.hosts to the ranks' machines, as far as sweep.machines gives
 * them. Its origin begins with DPB_LAUNCH_ORIGIN. */
dpb_status dpb_sweep_launch_place(const struct dpb_sweep *sweep, struct dpb_config *config);
/* The words of the template for these numbers of processes. *words, ended by NULL, is @owned:
 * dpb_sweep_list_destroy. */
dpb_status dpb_sweep_launch(const struct dpb_sweep *sweep, uint32_t workers, uint32_t servers,
                            uint32_t learners, char ***words, size_t *n_words);

#endif
