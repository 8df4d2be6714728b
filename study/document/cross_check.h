/*
 * cross_check.h - the runs of a sweep beside each other. Runs that differ in [comm] and [optimizer]
 * alone begin with equal weights and samples, so their first losses are equal. Compared are only
 * runs of the same build, data, host and threads, in fp32 or fp64, on no GPU, whose first loss is
 * that of all workers.
 */
#ifndef DPB_STUDY_DOCUMENT_CROSS_CHECK_H
#define DPB_STUDY_DOCUMENT_CROSS_CHECK_H

#include <jansson.h>

/* For each of runs[] null, or the sentence that its first loss is another than that of most of the
 * runs that should have the same. @owned. */
json_t *dpb_cross_check(const json_t *document);

/* Warns of runs that train bit for bit as `independent` does, although workers have met. */
void dpb_cross_check_warn(const json_t *document, json_t *warnings);

#endif
