/* sweep_print.c - the table of a sweep for people, and its notes; from the document alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "study/document/rows.h"
#include "study/document/target.h"
#include "study/table/merge.h"
#include "study/table/sweep_notes.h"
#include "study/table/sweep_print.h"
#include "study/table/sweep_table.h"
#include "study/table/target_print.h"
#include "study/table/tune_print.h"

/* Breaks a paragraph at white space. */
static void print_wrapped(char *text, FILE *out)
{
    size_t column = 0;
    char *state = NULL;
    for (char *word = strtok_r(text, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
        size_t length = strlen(word);
        if (column > 0 && column + 1 + length > DPB_TABLE_WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%s", column > 0 ? " " : "", word);
    }
    fputc('\n', out);
}

/* Wraps the paragraphs that `print` writes, one a line. */
static void wrap(void (*print)(const json_t *document, FILE *out), const json_t *document,
                 FILE *out)
{
    char *notes = dpb_json_printed(document, print), *state = NULL;
    for (char *note = notes ? strtok_r(notes, "\n", &state) : NULL; note;
         note = strtok_r(NULL, "\n", &state))
        print_wrapped(note, out);
    free(notes);
}

void dpb_sweep_print_best(const json_t *document, FILE *out)
{
    dpb_tune_print_best(document, out);
    wrap(dpb_sweep_warnings, document, out);
}

void dpb_sweep_print(const json_t *document, FILE *out)
{
    struct dpb_table table;
    if (dpb_tune_is(document)) {
        dpb_tune_print(document, out);
        dpb_sweep_print_best(document, out);
        return;
    }
    wrap(dpb_merge_notes, document, out);
    fputs(json_object_get(document, "merged") ? "\n" : "", out);
    if (dpb_sweep_table_make(document, &table) && table.n > 0) {
        dpb_sweep_table_fit(&table);
        dpb_table_print(&table, out);
        fputc('\n', out);
        dpb_target_print(document, out);
    }
    dpb_table_release(&table);
    wrap(dpb_sweep_notes, document, out);
}
