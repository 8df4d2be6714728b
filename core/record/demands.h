/*
 * demands.h - thresholds of the command line, --least and --most, and the judge of them: FIELD
 * [@KEY=VALUE,...]=NUMBER, over the rows of a document's series.
 */
#ifndef DPB_CORE_RECORD_DEMANDS_H
#define DPB_CORE_RECORD_DEMANDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpbench/status.h"

/* Adds the demand of `option` ("--least" or "--most") to the list *demands, which is made at the
 * first (@owned). The number is in the field's unit, or has one as options have. DPB_USAGE: the
 * text is none, or `command` ("comm") measures no such field or key. */
dpb_status dpb_demand_parse(const char *command, const char *option, const char *text,
                            json_t **demands);

typedef enum dpb_judged { DPB_JUDGED_HOLDS, DPB_JUDGED_FAILS, DPB_JUDGED_OPEN } dpb_judged;

/* Whether n repeats are at least (`most`: at most) the limit, by the 95 % interval of their mean:
 * it holds if the worse end holds, and fails if the better end fails. Open: neither, or there is no
 * interval, as for one repeat, or where a repeat has no value (NaN). */
dpb_judged dpb_demand_judge(const double *x, size_t n, double limit, bool most);

/* Judges all rows of the series that each demand names, and writes a message for each row that does
 * not hold. DPB_USAGE: no row has this field and these keys. Else DPB_REGRESSION: a row fails;
 * DPB_NOT_DECIDED: a row is open; DPB_OK. */
dpb_status dpb_demands_judge(const json_t *demands, const json_t *document);

#endif
