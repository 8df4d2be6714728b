/*
 * links_report.h - the measurements of `dpbench links`: a document of schema dpbench.links/1, and
 * tables.
 */
#ifndef DPB_LINKS_LINKS_REPORT_H
#define DPB_LINKS_LINKS_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "links/links.h"

/* Each makes a part of the document; @owned. The lists have the measured sizes alone. */
json_t *dpb_links_memory_to_json(const struct dpb_links_memory *memory);
json_t *dpb_links_latency_to_json(const struct dpb_links_cores *cores, const char *shared);
json_t *dpb_links_cores_to_json(const struct dpb_links_cores *cores, const char *shared);
json_t *dpb_links_loopback_to_json(const struct dpb_links_loopback *loopback, uint16_t a,
                                   uint16_t b);
json_t *dpb_links_host_to_json(const struct dpb_links_host *host);
json_t *dpb_links_pair_to_json(const struct dpb_links_pair *pair);
/* One way from a machine to another. */
json_t *dpb_links_way_to_json(uint32_t from, uint32_t to, const struct dpb_links_value *latency,
                              const struct dpb_links_value rate[DPB_LINKS_SIZES]);

/* Adds `series` and `ended` to a document that has all its parts. */
void dpb_links_series(json_t *document);

/* For people, from the document alone. */
void dpb_links_report_print(const json_t *document, FILE *out);

#endif
