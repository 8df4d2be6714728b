/*
 * network_cost.h - the link of a prediction from a document of `dpbench links network`.
 */
#ifndef DPB_STUDY_PREDICT_NETWORK_COST_H
#define DPB_STUDY_PREDICT_NETWORK_COST_H

#include <jansson.h>
#include <stdbool.h>

#include "study/predict/predict.h"

/*
 * The slowest way between any two machines: the least bandwidth of all and the largest latency. A
 * way's bandwidth is that of its largest messages, without the time of a message and its answer.
 * `error`: half the range of the windows of the way with the least bandwidth, as a share. False:
 * nothing was measured.
 */
bool dpb_network_slowest(const json_t *network, struct dpb_cost *cost, double *error);

#endif
