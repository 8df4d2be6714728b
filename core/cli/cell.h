/*
 * cell.h - a run that another program asks for: a cell of a sweep. Its child
 *
 *     dpbench -c - --json
 *
 * reads the request from standard input; under a launcher, whose processes have not all a standard
 * input, the request is a word in the place of `-`:
 *
 *     {"schema": "dpbench.cell/1",
 *      "config": as in a result, with the origins that the settings have in the sweep,
 *      "label": "[3/24] comm.name=shm", "ended_s": 12.5, "n_ended": 2, "n_left": 21,
 *      "warned": {CODE: how often the sweep has warned of it, and printed it once},
 *      "orders": the descriptor of a sweep in turns, inherited: launch/turns.h}
 *
 * All but schema and config may be missing. The child writes no file of its result. It prints a
 * document also where the run was refused, unless it is one of a launcher's processes. The document
 * has `warned`, too.
 */
#ifndef DPB_CORE_CLI_CELL_H
#define DPB_CORE_CLI_CELL_H

#include "cli/cli.h"

/* Whether the argument of -c is a request. */
bool dpb_cell_is(const char *word);
/* Fills `config` and `cell` of the arguments, and counts the warnings that were printed. DPB_USAGE:
 * it is no request. */
dpb_status dpb_cell_read(const char *word, struct dpb_arguments *arguments);
/* Where the run stands in its sweep; texts are @borrowed from the request. */
void dpb_cell_place(const json_t *cell, struct dpb_live_place *place);
/* Prints the document of the run. */
void dpb_cell_print(json_t *document);

/* {CODE: COUNT} of dpb_warnings_once, and back. @owned. */
json_t *dpb_warned_to_json(void);
void dpb_warned_from_json(const json_t *warned);

#endif
