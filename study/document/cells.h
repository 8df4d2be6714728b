/*
 * cells.h - the settings of a document by their values: documents have the texts of users, and one
 * value has several, as 4 MiB and 4MiB.
 */
#ifndef DPB_STUDY_DOCUMENT_CELLS_H
#define DPB_STUDY_DOCUMENT_CELLS_H

#include <jansson.h>

/* {SECTION: {KEY: value}} of a document's `config`, without origins; a text of one of core's
 * options is typed (dpb_option_value). @owned. */
json_t *dpb_config_values(const json_t *config);
/* By row of a sweep's document {SECTION.KEY: value} of its cell: as a run of the row has read it,
 * else by core's options, else the text. @owned. */
json_t *dpb_cell_values(const json_t *document);

#endif
