/*
 * derive.h - derived values: numeric settings that are expressions (expression.h) over other
 * options and facts of the model and its data,
 *
 *     run.batch = 256 / run.workers
 *     comm.bucket = parameters * 4 B / 8
 *
 * A name is SECTION.KEY of a numeric option, by its setting or its default; run.batch and
 * run.global_batch that are not given have the values that the run would take. Facts are
 * `parameters` (of the model), `samples` (of the training set), `classes` and `steps_per_epoch`.
 * Without a unit a value is in its option's own. Times are rounded to nanoseconds.
 */
#ifndef DPB_CORE_CLI_DERIVE_H
#define DPB_CORE_CLI_DERIVE_H

#include "base/config.h"
#include "cli/expression.h"

/* Between the origin of a derived value and its expression, which a bracket ends. */
#define DPB_DERIVED_MARK " (="

/* Whether the setting reads as an expression or a fact; of a text option it is neither. */
bool dpb_derive_is(const struct dpb_setting *setting);
/* Replaces each expression by its value. The setting's origin becomes "ORIGIN (= EXPRESSION)".
 * DPB_USAGE, with the origin: all that dpb_expression refuses, an option that is no number, names
 * that depend on themselves, a value that is not whole for an option that is. `comm`: for `dpbench
 * comm`, whose plugins have another host. */
dpb_status dpb_derive(struct dpb_config *config, bool comm);
/* Undoes that: the settings are expressions again. */
dpb_status dpb_derive_undo(struct dpb_config *config);
/* The value of an expression beside these settings; `place` is as for dpb_expression. */
dpb_status dpb_derive_value(const struct dpb_config *config, const char *text, const char *place,
                            struct dpb_amount *value);

#endif
