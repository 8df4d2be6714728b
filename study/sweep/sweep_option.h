/*
 * sweep_option.h - the options behind the settings of a sweep: core's, and those of the plugins and
 * update rules that its axes vary; and the values of settings by the options' own parsers.
 */
#ifndef DPB_STUDY_SWEEP_SWEEP_OPTION_H
#define DPB_STUDY_SWEEP_SWEEP_OPTION_H

#include "cli/expression.h"
#include "study/sweep/sweep_cells.h"

/* Cell `n_cells` of `sweep`, while its cells are chosen, with its settings. */
struct dpb_sweep_reading {
    const struct dpb_sweep *sweep;
    struct dpb_config *config;
};
/* As dpb_sweep_read and dpb_sweep_number_of, of a dpb_sweep_reading. A plugin is known if the sweep
 * names it, or if it is one of ours or found. */
dpb_status dpb_sweep_read_value(const void *reading, const char *name, const char *section,
                                const char *key, const char *text, json_t **value);
dpb_status dpb_sweep_read_number(const void *reading, const char *name, const char *text,
                                 struct dpb_amount *value);
/* DPB_USAGE: an axis, or the replicates, have one value twice, as 1 MiB and 1048576. */
dpb_status dpb_sweep_check_values(const struct dpb_sweep *sweep);
/* Value i of an axis as a number, in base units; NaN: its option is no number. */
double dpb_sweep_number(const struct dpb_sweep *sweep, size_t axis, size_t i);
/* Removes from a cell's `config` the settings of others: where the axis varies plugins or update
 * rules, an option that the cell's value `name` lacks and another value has. An option that none of
 * them has stays, and is refused. */
dpb_status dpb_sweep_leave_to_others(const struct dpb_sweep *sweep,
                                     const struct dpb_sweep_axis *axis, const char *name,
                                     struct dpb_config *config);

#endif
