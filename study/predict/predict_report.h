/*
 * predict_report.h - `dpbench predict`: from the result of one worker, or the profile of an
 * accelerator, to predictions for many, as one JSON document, schema dpbench.predict/1, and its
 * tables. docs/predicting.md has the fields.
 */
#ifndef DPB_STUDY_PREDICT_PREDICT_REPORT_H
#define DPB_STUDY_PREDICT_PREDICT_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "study/predict/predict_request.h"

/* *document is @owned. DPB_USAGE, by name, for a request that cannot be predicted. */
dpb_status dpb_predict_report_make(const struct dpb_predict_request *request, json_t **document);
void dpb_predict_report_print(const json_t *document, FILE *out);

#endif
