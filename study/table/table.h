/*
 * table.h - a table of texts, a line for each row of a sweep. Lines of one group stand together.
 */
#ifndef DPB_STUDY_TABLE_TABLE_H
#define DPB_STUDY_TABLE_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    DPB_TABLE_WIDTH = 100, /* of a line, in characters */
    DPB_TABLE_COLUMNS = 17,
    DPB_TABLE_CELL = 64,
    DPB_TABLE_GROUP = 512 /* holds most; longer ones are cut */
};

/* The first columns of every table. Strategy and label stand to the left. */
enum { DPB_TABLE_STRATEGY, DPB_TABLE_LABEL, DPB_TABLE_WORKERS, DPB_TABLE_NEXT };

struct dpb_table_line {
    char text[DPB_TABLE_COLUMNS][DPB_TABLE_CELL];
    char group[DPB_TABLE_GROUP]; /* the cell without strategy and workers: "run.batch = 16" */
    const json_t *row;           /* @borrowed */
    bool failed;                 /* has a reason in the place of its numbers */
};

struct dpb_table {
    const char *const *titles;    /* @borrowed */
    size_t n_columns;             /* at most DPB_TABLE_COLUMNS */
    struct dpb_table_line *lines; /* @owned */
    size_t n;
    bool shown[DPB_TABLE_COLUMNS]; /* the owner sets it */
};

/* Writes the texts of a line whose row is known. False: the row is no line of this table. */
typedef bool dpb_table_fill(struct dpb_table_line *line);

/* The lines of rows[], by group as it first appears, within it by cell. False: out of memory; the
 * table is empty then. dpb_table_release either way. */
bool dpb_table_make(const json_t *document, const char *const *titles, size_t n_columns,
                    dpb_table_fill *fill, struct dpb_table *table);
void dpb_table_release(struct dpb_table *table);

/* The number of columns that are shown. */
size_t dpb_table_n_shown(const struct dpb_table *table);
/* The characters of a line with two blanks between columns. */
size_t dpb_table_width(const struct dpb_table *table);
/* For people, with the settings of each group above its lines, and one blank between columns where
 * two need more than DPB_TABLE_WIDTH. */
void dpb_table_print(const struct dpb_table *table, FILE *out);

/* "failed: REASON" of a row without a good run. */
enum { DPB_TABLE_FAILURE = 4224 }; /* capacity that holds every message of dpb_fail */
void dpb_table_failure(const json_t *row, char *text, size_t capacity);
/* "2 workers, failed: REASON" of such a row's line, for forms that put it into one cell. */
void dpb_table_failed_cell(const struct dpb_table_line *line, char text[DPB_TABLE_FAILURE]);

#endif
