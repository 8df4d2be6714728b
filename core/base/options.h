/*
 * options.h - fills structs from a dpb_config by option tables, and prints the tables for help and
 * results.
 */
#ifndef DPB_CORE_BASE_OPTIONS_H
#define DPB_CORE_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/config.h"
#include "dpbench/option.h"

/* One owner's rows for one section. A section may have several tables: core's and the plugin's. */
struct dpb_option_table {
    const char *section;
    const char *owner; /* for messages: "comm 'shm'", or NULL for core's own */
    const struct dpb_option *rows;
    void *values; /* struct to be filled; large enough for every row's offset */
};

/*
 * Fills the values of all tables from the configuration or the defaults. Refuses (DPB_USAGE), with
 * the origin of the setting: an unknown section or key ("did you mean 'bucket'?"), a value that
 * does not parse, an unknown unit, a value out of range or not among the choices. Refuses
 * (DPB_UNSUPPORTED) tables of one section that have the same key. Strings in the values are
 * @borrowed from `config` or from the table.
 */
dpb_status dpb_options_parse(const struct dpb_option_table *tables, size_t n_tables,
                             const struct dpb_config *config);
/* The last of these refusals alone. */
dpb_status dpb_options_differ(const struct dpb_option_table *tables, size_t n_tables);
/* Fills one table and ignores unknown keys: plugin names are needed before plugins' tables. */
dpb_status dpb_options_parse_known(const struct dpb_option_table *table,
                                   const struct dpb_config *config);

/* The row of a key; NULL: there is none. `rows` may be NULL. */
const struct dpb_option *dpb_options_find(const struct dpb_option *rows, const char *key);

/* The typed value of one setting, as in dpb_options_effective: texts of one value ("4 MiB", "4MiB")
 * have equal JSON. DPB_USAGE: the text does not parse; without a message if the origin is NULL.
 * Ranges are not checked. *value is @owned. */
dpb_status dpb_option_value(const struct dpb_option *row, const struct dpb_setting *setting,
                            json_t **value);

/* config.SECTION.KEY.{value,origin} of every row, with typed values, sizes in bytes and times in
 * seconds. A setting that was not given has origin "default"; without a default its value is null.
 * @owned. */
json_t *dpb_options_effective(const struct dpb_option_table *tables, size_t n_tables,
                              const struct dpb_config *config);

/* The rows of a table as help text: name, type or choices, default, range, help. */
void dpb_options_print(const char *section, const struct dpb_option *rows, FILE *out);

/* The size of the member that a row of this type fills; 0: no such type. */
size_t dpb_option_bytes(dpb_option_type type);

#endif
