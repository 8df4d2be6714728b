/*
 * config.h - the user's settings: SECTION.KEY = VALUE, each with its origin.
 *
 * Values are text; the option tables (options.h) have types and defaults. As JSON the same
 * container travels to the workers, and back from a result (`rerun`).
 */
#ifndef DPB_CORE_BASE_CONFIG_H
#define DPB_CORE_BASE_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "dpbench/host.h"

/* The origin of a SECTION.KEY=VALUE argument. */
#define DPB_COMMAND_LINE "command line"

/* Who set it: plan/unused.h refuses or warns by it. */
typedef enum dpb_setting_from {
    DPB_FROM_DOCUMENT, /* JSON: of an earlier run, or of the process that started this one */
    DPB_FROM_FILE,
    DPB_FROM_COMMAND, /* the command line, or a command by itself */
    DPB_FROM_AXIS     /* a sweep, for one of its cells */
} dpb_setting_from;

struct dpb_setting {
    char *section, *key, *value;
    char *origin; /* "conf/x.ini:12", "command line", "derived", "launcher" */
    /* A number from a result's JSON, in bytes or seconds instead of the option's own unit. */
    bool base_units;
    dpb_setting_from from;
};

struct dpb_config {
    struct dpb_setting *settings; /* in order of first appearance */
    size_t n_settings;
};

struct dpb_config *dpb_config_create(void);
struct dpb_config *dpb_config_copy(const struct dpb_config *config);
void dpb_config_destroy(struct dpb_config *config); /* accepts NULL */

/* Reads an .ini file (UTF-8, sections, `;` and `#` comments). Refused with FILE:LINE: a key outside
 * a section, a key given twice, a line over 8191 bytes without its comment, a line without `=`, NUL
 * bytes, a file that cannot be read. An indented line is a line of its own: there are no
 * multi-line values. `config` changes on success only. */
dpb_status dpb_config_read(struct dpb_config *config, const char *path);
/* "SECTION.KEY=VALUE"; replaces the file's value. The section ends at the first dot. */
dpb_status dpb_config_assign(struct dpb_config *config, const char *assignment, const char *origin);
dpb_status dpb_config_set(struct dpb_config *config, const char *section, const char *key,
                          const char *value, const char *origin);
/* From now on the setting is from `from`: dpb_config_set leaves DPB_FROM_COMMAND. */
void dpb_config_mark(struct dpb_config *config, const char *section, const char *key,
                     dpb_setting_from from);
void dpb_config_remove(struct dpb_config *config, const char *section, const char *key);
/* NULL: not given. @borrowed until the next change. */
const struct dpb_setting *dpb_config_get(const struct dpb_config *config, const char *section,
                                         const char *key);
/* A whole number that is not checked yet; `none`: not given. */
unsigned long dpb_config_count(const struct dpb_config *config, const char *section,
                               const char *key, unsigned long none);
/* The origin of a setting: "FILE:LINE", "command line" or "default". @borrowed likewise. */
const char *dpb_config_origin(const struct dpb_config *config, const char *section,
                              const char *key);
/* dpb_fail with the setting's origin before the message. */
DPB_PRINTF(5, 6)
dpb_status dpb_config_fail(const struct dpb_config *config, dpb_status status, const char *section,
                           const char *key, const char *format, ...);

/* {SECTION: {KEY: {"value": text, "origin": text}}}. Reading also accepts the numbers and booleans
 * of a result, and skips entries with origin "default" or "derived". @owned. */
json_t *dpb_config_to_json(const struct dpb_config *config);
dpb_status dpb_config_from_json(struct dpb_config *config, const json_t *json, const char *what);
/* The text of a scalar, or NULL. Numbers have the fewest digits that read back as the same number.
 * Numbers need `buffer` (64 bytes hold each). */
const char *dpb_config_text(const json_t *value, char *buffer, size_t capacity);

#endif
