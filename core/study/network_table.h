/* network_table.h - `network` of a document of `dpbench links network`: for people, and as the link
 * that `dpbench predict` takes from it. */
#ifndef DPB_CORE_STUDY_NETWORK_TABLE_H
#define DPB_CORE_STUDY_NETWORK_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "study/predict.h"

void dpb_network_report_print(const json_t *network, FILE *out);
/*
 * The slowest way between any two machines: the least bandwidth of all and the largest latency. A
 * way's bandwidth is that of its largest messages, without the time of a message and its answer.
 * `error`: half the range of the windows of the way with the least bandwidth, as a share. False:
 * nothing was measured.
 */
bool dpb_network_slowest(const json_t *network, struct dpb_cost *cost, double *error);

#endif
