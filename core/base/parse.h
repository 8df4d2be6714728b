/*
 * parse.h - parses one value: a boolean, a number, a number with a unit; and finds the nearest word
 * to a misspelt one. options.c writes the messages.
 */
#ifndef DPB_CORE_BASE_PARSE_H
#define DPB_CORE_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dpb_parsed {
    DPB_PARSED,
    DPB_PARSED_MALFORMED,   /* not a number (a boolean), or something follows it */
    DPB_PARSED_OVERFLOW,    /* more than the type holds */
    DPB_PARSED_UNDERFLOW,   /* not 0, and nearer to it than the type's numbers */
    DPB_PARSED_NO_UNIT,     /* a bare number where a unit is needed */
    DPB_PARSED_BAD_UNIT,    /* a unit that is not in the list; units differ by case */
    DPB_PARSED_NOT_INTEGRAL /* half a byte, a third of a nanosecond */
} dpb_parsed;

struct dpb_unit {
    const char *name;
    uint64_t factor;
};

/* Ended by name = NULL, from small to large. */
extern const struct dpb_unit dpb_size_units[], dpb_time_units[];
extern const struct dpb_unit dpb_rate_units[]; /* B/s, kbit to GB: bytes a second; "/s" is free */
/* "B, kB, KiB, ..." */
void dpb_unit_names(const struct dpb_unit *units, char *names, size_t capacity);

/* All write *value only on DPB_PARSED. The whole text must be one decimal value; NaN and inf fail.
 */
dpb_parsed dpb_parse_int(const char *text, int64_t *value);
dpb_parsed dpb_parse_real(const char *text, double *value);
/* A number (decimals allowed), blanks, a unit. A value that is not exact is refused. A bare number
 * is in `bare_unit`; NULL refuses it. Values above INT64_MAX overflow. */
dpb_parsed dpb_parse_quantity(const char *text, const struct dpb_unit *units, const char *bare_unit,
                              uint64_t *value);
/* Seconds as a real number in any notation, to the nearest nanosecond. */
dpb_parsed dpb_parse_seconds(const char *text, int64_t *ns);

/* Searches the nearest of many words; start with {.word = ...}. */
struct dpb_nearest {
    const char *word, *found; /* found: NULL while none is near; @borrowed from the offers */
    size_t distance;
};

/* Offers a candidate. Near: at most as many edits (insert, delete, replace, swap neighbours; case
 * is free) as a third of the longer word's letters; a candidate that begins with the word counts as
 * one edit. The first of equals stays. Damerau: A technique
 * for computer detection and correction of spelling errors. CACM 7(3), 1964.
 */
void dpb_nearest_offer(struct dpb_nearest *nearest, const char *candidate);

/* Parses one value as the tables do. False, with nothing written, when it is malformed. */
bool dpb_parse_size(const char *text, uint64_t *bytes);
bool dpb_parse_time(const char *text, const char *bare_unit, int64_t *ns);
bool dpb_parse_bool(const char *text, bool *value);

/* The nearest of NULL-terminated `names` to `word` by edit distance, or NULL if none is near. */
const char *dpb_did_you_mean(const char *word, const char *const *names);

#endif
