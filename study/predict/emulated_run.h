/*
 * emulated_run.h - a run of several workers on device `emulated`, predicted from its own profile:
 * does its step take what its strategy costs over its link?
 */
#ifndef DPB_STUDY_PREDICT_EMULATED_RUN_H
#define DPB_STUDY_PREDICT_EMULATED_RUN_H

#include <jansson.h>
#include <stdbool.h>

#include "study/predict/predict_request.h"
#include "study/predict/predict_worker.h"

bool dpb_emulated_is(const json_t *result);

/* The request for this very run: its workers, machines, servers, strategy and bucket, and, without
 * links in the request, that of `dpbench hosts` (world.hosts). `strategy` has room for the name,
 * @borrowed. DPB_USAGE: the request has its own, no link is known, or the run was of a kind that
 * predict has no model of. */
enum { DPB_EMULATED_STRATEGY = 96 };
dpb_status dpb_emulated_request(const json_t *result, struct dpb_predict_request *request,
                                char strategy[DPB_EMULATED_STRATEGY]);

/* Gives the profile's worker what the device emulates beside it, by its options: copies to and from
 * the host, accelerators within the worker, a slower backward; and the run's measured updates, as
 * these are the host's. Lengths of arrays stay. */
void dpb_emulated_shape(const json_t *result, struct dpb_predict_worker *worker);

/* run.* of the document, from the run's row of rows[]. @owned */
json_t *dpb_emulated_verdict(const json_t *result, const struct dpb_predict_worker *worker,
                             const json_t *row);

#endif
